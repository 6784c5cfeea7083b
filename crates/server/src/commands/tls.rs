//! `stafett tls self-signed`: certificates for a try, from an authority that is made for them.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use jiff::{Span, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use crate::failure::Failure;

const DIR: &str = "dir";
const NAME: &str = "name";
const USER: &str = "user";
const DAYS: &str = "days";
/// Names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

pub(super) fn describe() -> Command {
    let self_signed = Command::new("self-signed")
        .about("Write an authority, a server certificate and a client certificate into a folder")
        .arg(
            Arg::new(DIR)
                .long(DIR)
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .default_value("tls")
                .help("The folder, which is created if it is absent; no file in it is replaced"),
        )
        .arg(
            Arg::new(NAME)
                .long(NAME)
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("A name or address of the server, beside those of loopback; can be given several times"),
        )
        .arg(
            Arg::new(USER)
                .long(USER)
                .value_name("NAME")
                .default_value("client")
                .help("The common name in the client certificate"),
        )
        .arg(
            Arg::new(DAYS)
                .long(DAYS)
                .value_name("N")
                .value_parser(value_parser!(i64).range(1..=3650))
                .default_value("365")
                .help("Days until they end"),
        )
        .after_help("Examples:\n  stafett tls self-signed\n  stafett tls self-signed --dir certs --name broker.example");
    Command::new("tls")
        .about("Make certificates to try TLS with")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(self_signed)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("self-signed", matches)) => Ok(self_signed(matches)?),
        _ => Ok(()),
    }
}

fn self_signed(matches: &ArgMatches) -> anyhow::Result<()> {
    let dir = matches.get_one::<PathBuf>(DIR).context("no folder is given")?;
    let days = matches.get_one::<i64>(DAYS).copied().unwrap_or(365);
    let given = matches.get_many::<String>(NAME).into_iter().flatten().cloned();
    let names: Vec<String> = given.chain(LOOPBACK.map(str::to_owned)).collect();
    let user = matches.get_one::<String>(USER).map_or("client", String::as_str);

    fs::create_dir_all(dir).with_context(|| format!("the folder {} cannot be created", dir.display()))?;
    let pairs = ["ca", "server", "client"];
    let files = pairs
        .iter()
        .flat_map(|name| [format!("{name}.pem"), format!("{name}.key")]);
    if let Some(there) = files.map(|file| dir.join(file)).find(|path| path.exists()) {
        return Err(anyhow!(
            "{} is there already, and is not replaced",
            there.display()
        ));
    }
    let authority = authority(dir, days)?;
    issue(dir, "server", &authority, server(names, days)?)?;
    issue(dir, "client", &authority, client(user, days)?)?;
    explain(dir)
}

fn authority(dir: &Path, days: i64) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let mut params = valid_for(CertificateParams::default(), "Stafett authority for a try", days)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    write(dir, "ca", &params.self_signed(&key)?.pem(), &key)?;
    Ok(Issuer::new(params, key))
}

fn server(names: Vec<String>, days: i64) -> anyhow::Result<CertificateParams> {
    let params =
        CertificateParams::new(names).context("a name of the server is neither a name nor an address")?;
    let mut params = valid_for(params, "Stafett", days)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn client(user: &str, days: i64) -> anyhow::Result<CertificateParams> {
    let mut params = valid_for(CertificateParams::default(), user, days)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn issue(
    dir: &Path,
    name: &str,
    authority: &Issuer<'_, KeyPair>,
    mut params: CertificateParams,
) -> anyhow::Result<()> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    write(dir, name, &params.signed_by(&key, authority)?.pem(), &key)
}

fn valid_for(mut params: CertificateParams, name: &str, days: i64) -> anyhow::Result<CertificateParams> {
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let day = |from_now: i64| {
        let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
        let date = today.checked_add(Span::new().days(from_now))?;
        let number = |part: i8| u8::try_from(part).unwrap_or(1);
        anyhow::Ok(rcgen::date_time_ymd(
            i32::from(date.year()),
            number(date.month()),
            number(date.day()),
        ))
    };
    // Clocks of other machines may be behind.
    params.not_before = day(-1)?;
    params.not_after = day(days)?;
    Ok(params)
}

fn write(dir: &Path, name: &str, certificate: &str, key: &KeyPair) -> anyhow::Result<()> {
    create(&dir.join(format!("{name}.pem")), certificate, 0o644)?;
    create(&dir.join(format!("{name}.key")), &key.serialize_pem(), 0o600)
}

fn create(path: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("{} cannot be written", path.display()))
}

fn explain(dir: &Path) -> anyhow::Result<()> {
    let dir = std::path::absolute(dir)?;
    let dir = dir.display();
    writeln!(
        io::stdout(),
        "wrote ca.pem, server.pem and client.pem with their keys into {dir}\n\n\
         In the file of settings (stafett serve --config FILE):\n\n\
         [tls]\n\
         certificate = \"{dir}/server.pem\"\n\
         key = \"{dir}/server.key\"\n\
         # clients = \"optional\"\n\
         # client_ca = \"{dir}/ca.pem\"\n\n\
         Clients trust ca.pem:\n\n  \
         curl --cacert {dir}/ca.pem https://localhost:7443/health\n  \
         stafett node status --http https://localhost:7443 --ca {dir}/ca.pem"
    )?;
    Ok(())
}
