//! The macro that generates typed settings and their definitions from a table.

/// See [`super::settings`] for the syntax of a table.
macro_rules! settings {
    (
        $root:ident { $(
            $(#[doc = $doc:literal])+
            $name:ident: $kind:ty = $default:literal
                $(, in $range:expr)? $(, flag $flag:literal)? $(, reloads $reloads:literal)? ;
        )* }
        $( $group:ident: $type:ident { $(
            $(#[doc = $group_doc:literal])+
            $group_name:ident: $group_kind:ty = $group_default:literal
                $(, in $group_range:expr)? $(, flag $group_flag:literal)? $(, reloads $group_reloads:literal)? ;
        )* } )*
    ) => {
        /// All settings, in the order of the table.
        pub(crate) static DEFINITIONS: &[Definition] = &[
            $( settings!(@definition stringify!($name); [$($doc),+]; $kind; $default; $($range)?; $($flag)?; $($reloads)?), )*
            $( $( settings!(
                @definition concat!(stringify!($group), ".", stringify!($group_name));
                [$($group_doc),+]; $group_kind; $group_default; $($group_range)?; $($group_flag)?; $($group_reloads)?
            ), )* )*
        ];

        settings!(@struct $root { $( $([$doc])+ $name: <$kind as Kind>::Value, )* $( [" One table of the file."] $group: $type, )* });
        $( settings!(@struct $type { $( $([$group_doc])+ $group_name: <$group_kind as Kind>::Value, )* }); )*

        impl $root {
            /// Parses all settings from the given values.
            pub(super) fn read(values: &Values) -> Result<Self, ConfigError> {
                Ok(Self {
                    $( $name: values.read::<$kind>(stringify!($name))?, )*
                    $( $group: $type {
                        $( $group_name: values.read::<$group_kind>(
                            concat!(stringify!($group), ".", stringify!($group_name))
                        )?, )*
                    }, )*
                })
            }

            /// Returns the keys and values, in the order of the table.
            pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
                vec![
                    $( (stringify!($name), format!("{:?}", self.$name)), )*
                    $( $( (
                        concat!(stringify!($group), ".", stringify!($group_name)),
                        format!("{:?}", self.$group.$group_name),
                    ), )* )*
                ]
            }
        }
    };
    (@struct $type:ident { $( $([$doc:literal])+ $name:ident: $value:ty, )* }) => {
        #[derive(Debug, Clone)]
        #[allow(
            dead_code,
            clippy::struct_field_names,
            reason = "the names are those of the settings, and which part of the program reads one is not the business of the table"
        )]
        pub(crate) struct $type {
            $( $(#[doc = $doc])+ pub(crate) $name: $value, )*
        }
    };
    (@definition $key:expr; [$($doc:literal),+]; $kind:ty; $default:literal; $($range:expr)?; $($flag:literal)?; $($reloads:literal)?) => {
        Definition {
            key: $key,
            doc: &[$($doc),+],
            default: $default,
            shape: <$kind as Kind>::SHAPE,
            range: settings!(@range $($range)?),
            write: <$kind as Kind>::WRITE,
            show: <$kind as Kind>::SHOW,
            flag: settings!(@flag $($flag)?),
            reloads: settings!(@reloads $($reloads)?),
        }
    };
    (@range) => { None };
    (@range $range:expr) => {{
        const RANGE: std::ops::RangeInclusive<u64> = $range;
        Some((*RANGE.start(), *RANGE.end()))
    }};
    (@reloads) => { false };
    (@reloads $reloads:literal) => { $reloads };
    (@flag) => { None };
    (@flag $flag:literal) => { Some($flag) };
}

pub(super) use settings;
