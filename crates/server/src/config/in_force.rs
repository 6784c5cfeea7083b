//! The settings in force, as the HTTP API shows them. Clones share them.

use std::sync::Arc;

use stafett_admin::node::Setting;
use stafett_model::Lock;

use super::definition::Definition;
use super::{DEFINITIONS, Loaded};

#[derive(Debug, Clone, Default)]
pub(crate) struct SettingsInForce(Arc<Lock<Vec<Setting>>>);

impl SettingsInForce {
    pub(crate) fn new(loaded: &Loaded) -> Self {
        let all = DEFINITIONS.iter().map(|definition| shown(definition, loaded));
        Self(Arc::new(Lock::new(all.collect())))
    }

    /// Returns all settings, in the order of the table.
    pub(crate) fn list(&self) -> Vec<Setting> {
        self.0.lock().clone()
    }

    /// Replaces settings that have changed.
    pub(crate) fn replace(&self, keys: &[&str], loaded: &Loaded) {
        let mut all = self.0.lock();
        for definition in DEFINITIONS.iter().filter(|it| keys.contains(&it.key)) {
            if let Some(setting) = all.iter_mut().find(|setting| setting.key == definition.key) {
                *setting = shown(definition, loaded);
            }
        }
    }
}

fn shown(definition: &'static Definition, loaded: &Loaded) -> Setting {
    let (value, source) = loaded.values.given(definition);
    Setting {
        key: definition.key,
        value: (definition.show)(value),
        default: definition.default,
        source,
        reloads: definition.reloads,
        about: definition.text(),
    }
}
