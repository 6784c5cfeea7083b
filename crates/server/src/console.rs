//! The console's pages, by the settings of `[console]`.

use axum::Router;
use serde_json::json;

use crate::config::Console as Settings;

/// Returns the routes of the pages.
pub(crate) fn router(settings: &Settings) -> Router {
    if !settings.enabled {
        return stafett_console::without_pages();
    }
    let of_pages = json!({
        "shows_only": settings.actions,
        "prometheus_url": settings.prometheus_url,
        "lab_url": settings.lab_url,
    });
    stafett_console::router(stafett_console::Console {
        folder: settings.dir.clone(),
        settings: of_pages.to_string(),
    })
}

/// Guards all routes: pages that only show make no other requests.
pub(crate) fn guarded(settings: &Settings, routes: Router) -> Router {
    if settings.actions {
        stafett_admin::pages_only_show(routes)
    } else {
        routes
    }
}
