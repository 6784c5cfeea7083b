//! `/v1/login`, `/v1/logout`, `/v1/whoami`, `/v1/users`, `/v1/tokens`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stafett_access::{Action, Caller, Resource, Token, User, Verifiers};
use stafett_broker::Broker;
use stafett_broker::{AccessError, Proof};
use stafett_http::api::{delete, get, post, put};
use stafett_http::body::{self, Object};
use stafett_http::list::List;
use stafett_http::{Code, Path, Problem, Query, Slot, server};
use stafett_store::wall_ms;

use super::verifiers::VerifiersShown;
use super::{COOKIE, limits, may, permissions, quotas, refused, rules, session};
use crate::caller::OnlyIfAbsent;
use crate::refusals::{self, of_storage};
use crate::time::rfc3339;
use crate::{Routes, answer};

const USERS: List<Arc<User>, UserStatus> = List {
    name: |user| ("", &user.name),
    sorts: &[],
    shown: shown_user,
};
const TOKENS: List<Arc<Token>, TokenStatus> = List {
    name: |token| ("", &token.id),
    sorts: &[],
    shown: shown_token,
};

/// Name and password of a login.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Login {
    user: String,
    password: String,
}

/// The caller of a request, and its rights.
#[derive(Debug, Serialize, JsonSchema)]
struct Whoami {
    /// The user; `operator` while logins are not needed.
    name: String,
    /// Tags of the user.
    tags: Vec<String>,
    /// `view`, `operate`, and `administer`. Other rights depend on names.
    can: Vec<&'static str>,
    /// `open` while no user is an administrator, else `user`.
    how: &'static str,
}

/// A user. Its verifiers are not shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "User")]
struct UserStatus {
    name: String,
    tags: Vec<String>,
    /// Ways to log in with its password: `scram_sha256`, `scram_sha512`, `salted_hash`.
    verifiers: Vec<&'static str>,
}

/// Settings of a user.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UserSettings {
    /// Absent: the password stays as it is; a new user has none.
    #[serde(default)]
    password: Option<String>,
    /// Verifiers of a password, as definitions show them, instead of a password.
    #[serde(default)]
    verifiers: Option<Object<VerifiersShown>>,
    /// Absent: tags stay as they are.
    #[serde(default)]
    tags: Option<Vec<String>>,
}

/// A token, without its text.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Token")]
struct TokenStatus {
    id: String,
    user: String,
    description: String,
    expires: Option<String>,
}

/// A token to be made.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WantedToken {
    user: String,
    #[serde(default)]
    description: String,
    /// Time until it expires, in ms; absent for never.
    #[serde(default)]
    ttl_ms: Option<u64>,
}

/// A token that was made. The text is shown once.
#[derive(Debug, Serialize, JsonSchema)]
struct MadeToken {
    id: String,
    token: String,
    expires: Option<String>,
}

pub(crate) fn routes(routes: Routes) -> Routes {
    let routes = routes
        .route(
            post(
                "/v1/login",
                "Begins a session of a page: the answer sets a cookie.",
            )
            .open()
            .body::<Login>()
            .answers::<Whoami>(200)
            .refuses(&[Code::Unauthenticated, Code::NotServing, Code::Overloaded]),
            login,
        )
        .route(
            post("/v1/logout", "Ends the session of a page.").answers::<Whoami>(200),
            logout,
        )
        .route(
            get("/v1/whoami", "Shows the caller, and what it may do.")
                .answers::<Whoami>(200)
                .refuses(&[Code::NotServing]),
            whoami,
        )
        .with(users)
        .with(tokens);
    let routes = permissions::routes(may::routes(routes));
    limits::routes(quotas::routes(rules::routes(routes)))
}

fn users(routes: Routes) -> Routes {
    const PATH: &str = "/v1/users/{user}";
    routes
        .route(
            get("/v1/users", "Lists users.")
                .lists(&USERS)
                .refuses(&[Code::NotServing]),
            list_users,
        )
        .route(
            get(PATH, "Shows a user.")
                .answers::<UserStatus>(200)
                .refuses(&[Code::NotServing, Code::NoSuchUser]),
            show_user,
        )
        .route(
            put(PATH, "Makes a user, or changes its password or tags.")
                .event("user.made")
                .body::<UserSettings>()
                .answers::<UserStatus>(200)
                .answers::<UserStatus>(201)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::LastAdministrator, Code::Overloaded]),
            put_user,
        )
        .route(
            delete(
                PATH,
                "Deletes a user with its tokens and rules. Its connections end.",
            )
            .event("user.deleted")
            .answers::<UserStatus>(200)
            .refuses(&refusals::STORAGE)
            .refuses(&[Code::NoSuchUser, Code::LastAdministrator, Code::Overloaded]),
            delete_user,
        )
}

fn tokens(routes: Routes) -> Routes {
    routes
        .route(
            get("/v1/tokens", "Lists tokens.")
                .lists(&TOKENS)
                .refuses(&[Code::NotServing]),
            list_tokens,
        )
        .route(
            post("/v1/tokens", "Makes a token of a user. Its text is shown once.")
                .event("token.made")
                .body::<WantedToken>()
                .answers::<MadeToken>(201)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchUser, Code::Overloaded]),
            make_token,
        )
        .route(
            delete("/v1/tokens/{id}", "Revokes a token.")
                .event("token.deleted")
                .answers::<TokenStatus>(200)
                .refuses(&refusals::STORAGE)
                .refuses(&[Code::NoSuchToken, Code::Overloaded]),
            delete_token,
        )
}

/// Returns the refusal of a change of users, tokens or rules.
pub(super) fn of_access(error: AccessError) -> Problem {
    match error {
        AccessError::NotStored(why) => of_storage(why, why),
        AccessError::NoSuchUser(_) => Problem::new(Code::NoSuchUser, error),
        AccessError::NoSuchToken(_) => Problem::new(Code::NoSuchToken, error),
        AccessError::LastAdministrator(_) => Problem::new(Code::LastAdministrator, error),
        AccessError::Busy => Problem::new(Code::Overloaded, error),
        AccessError::Name(_)
        | AccessError::Rule(_)
        | AccessError::Quota(_)
        | AccessError::Pattern(_)
        | AccessError::TooMany
        | AccessError::Password
        | AccessError::Description => Problem::bad_request(error),
    }
}

fn of_caller(broker: &Broker, caller: &Caller) -> Whoami {
    let user = caller
        .name()
        .and_then(|name| broker.access().directory().user(name));
    let rights = [
        ("view", Action::Describe),
        ("operate", Action::Operate),
        ("administer", Action::Alter),
    ];
    let can = rights
        .into_iter()
        .filter(|(_, action)| caller.may(*action, &Resource::CLUSTER));
    Whoami {
        name: caller.name().unwrap_or("operator").to_owned(),
        tags: user
            .map(|user| user.tags().map(str::to_owned).collect())
            .unwrap_or_default(),
        can: can.map(|(word, _)| word).collect(),
        how: if caller.name().is_some() { "user" } else { "open" },
    }
}

async fn login(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let peer = server::peer(&request).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let is_secure = server::tls(&request).is_some();
    let given: Login = body::json(request).await?;
    let broker = broker.get()?;
    let access = broker.access();
    let proof = Proof::Password {
        user: &given.user,
        password: given.password.as_bytes(),
    };
    let caller = access.login(proof, peer).await.map_err(refused)?;
    let session = access.begin_session(&given.user);
    let mut response = answer(StatusCode::OK, &of_caller(&broker, &caller));
    set_cookie(&mut response, &session, is_secure, "");
    Ok(response)
}

async fn logout(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let is_secure = server::tls(&request).is_some();
    if let Some(session) = session(request.headers()) {
        broker.access().end_session(session);
    }
    let mut response = answer(StatusCode::OK, &of_caller(&broker, &super::caller(&broker)));
    set_cookie(&mut response, "", is_secure, "; Max-Age=0");
    Ok(response)
}

/// Sets the cookie of a session. One that came by TLS is never sent in plain text.
fn set_cookie(response: &mut Response, value: &str, is_secure: bool, more: &str) {
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

async fn whoami(State(broker): State<Slot<Broker>>) -> Result<Response, Problem> {
    let broker = broker.get()?;
    Ok(answer(
        StatusCode::OK,
        &of_caller(&broker, &super::caller(&broker)),
    ))
}

fn shown_user(user: &Arc<User>) -> UserStatus {
    let verifiers = [
        ("scram_sha256", user.verifiers.sha256.is_some()),
        ("scram_sha512", user.verifiers.sha512.is_some()),
        ("salted_hash", user.verifiers.salted.is_some()),
    ];
    let verifiers = verifiers.into_iter().filter(|(_, is_there)| *is_there);
    UserStatus {
        name: user.name.to_string(),
        tags: user.tags().map(str::to_owned).collect(),
        verifiers: verifiers.map(|(word, _)| word).collect(),
    }
}

pub(super) fn no_such_user(name: &str) -> Problem {
    Problem::new(Code::NoSuchUser, format!("there is no user {name:?}"))
}

async fn list_users(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let all = broker.get()?.access().directory().users();
    Ok(answer(StatusCode::OK, &USERS.page(&query, all)?))
}

async fn show_user(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let user = broker.get()?.access().directory().user(&name);
    let user = user.ok_or_else(|| no_such_user(&name))?;
    Ok(answer(StatusCode::OK, &shown_user(&user)))
}

async fn put_user(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let only_if_absent = OnlyIfAbsent::is_in(&request);
    let Object(wanted): Object<UserSettings> = body::json(request).await?;
    let broker = broker.get()?;
    let access = broker.access();
    let before = access.directory().user(&name);
    let verifiers = match (wanted.password, wanted.verifiers) {
        (Some(_), Some(_)) => return Err(Problem::bad_request("a password, or verifiers of one")),
        (Some(password), None) => access.verifiers(password).await.map_err(of_access)?,
        (None, Some(Object(verifiers))) => verifiers.read()?,
        (None, None) => before
            .as_ref()
            .map_or_else(Verifiers::default, |user| user.verifiers.clone()),
    };
    let tags = wanted.tags.unwrap_or_else(|| {
        let tags = before
            .as_ref()
            .map(|user| user.tags().map(str::to_owned).collect());
        tags.unwrap_or_default()
    });
    let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
    let user = User::new(&name, verifiers, &tags).map_err(Problem::bad_request)?;
    let shown = shown_user(&Arc::new(user.clone()));
    let by = super::caller(&broker);
    let is_new = if only_if_absent {
        let made = access.make_user(&by, user).await.map_err(of_access)?;
        OnlyIfAbsent::check(made)?;
        made
    } else {
        access.put_user(&by, user).await.map_err(of_access)?
    };
    let status = if is_new {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok(answer(status, &shown))
}

async fn delete_user(
    State(broker): State<Slot<Broker>>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let user = broker.access().directory().user(&name);
    let user = user.ok_or_else(|| no_such_user(&name))?;
    let by = super::caller(&broker);
    broker.access().delete_user(&by, &name).await.map_err(of_access)?;
    Ok(answer(StatusCode::OK, &shown_user(&user)))
}

fn shown_token(token: &Arc<Token>) -> TokenStatus {
    TokenStatus {
        id: token.id.to_string(),
        user: token.user.to_string(),
        description: token.description.to_string(),
        expires: token.expires_ms.map(rfc3339),
    }
}

async fn list_tokens(State(broker): State<Slot<Broker>>, query: Query) -> Result<Response, Problem> {
    let all = broker.get()?.access().directory().tokens();
    Ok(answer(StatusCode::OK, &TOKENS.page(&query, all)?))
}

async fn make_token(State(broker): State<Slot<Broker>>, request: Request) -> Result<Response, Problem> {
    let wanted: WantedToken = body::json(request).await?;
    let broker = broker.get()?;
    let expires = wanted
        .ttl_ms
        .map(|ttl| wall_ms().saturating_add(i64::try_from(ttl).unwrap_or(i64::MAX)));
    let by = super::caller(&broker);
    let made = broker
        .access()
        .make_token(&by, &wanted.user, &wanted.description, expires)
        .await;
    let made = made.map_err(of_access)?;
    let shown = MadeToken {
        id: made.token.id.to_string(),
        token: made.text,
        expires: expires.map(rfc3339),
    };
    Ok(answer(StatusCode::CREATED, &shown))
}

async fn delete_token(
    State(broker): State<Slot<Broker>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let broker = broker.get()?;
    let access = broker.access();
    let token = access
        .directory()
        .tokens()
        .into_iter()
        .find(|token| *token.id == *id);
    let token = token.ok_or_else(|| of_access(AccessError::NoSuchToken(id.clone())))?;
    let by = super::caller(&broker);
    access.delete_token(&by, &id).await.map_err(of_access)?;
    Ok(answer(StatusCode::OK, &shown_token(&token)))
}
