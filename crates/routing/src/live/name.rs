//! Name of a topic: inline if it is short, as most are, so that a comparison needs no further memory access.

/// Bytes of an inline name; with this size a topic fills one cache line.
const SHORT_MAX: usize = 46;

#[derive(Debug)]
pub(super) enum Name {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<str>),
}

impl Name {
    pub(super) fn new(name: &str) -> Self {
        let mut bytes = [0; SHORT_MAX];
        match (bytes.get_mut(..name.len()), u8::try_from(name.len())) {
            (Some(place), Ok(len)) => {
                place.copy_from_slice(name.as_bytes());
                Self::Short { len, bytes }
            }
            _ => Self::Long(name.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(name) => name.as_bytes(),
        }
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.bytes() == name.as_bytes()
    }

    pub(super) fn text(&self) -> &str {
        match self {
            // Built from a `&str`.
            Self::Short { .. } => std::str::from_utf8(self.bytes()).unwrap_or_default(),
            Self::Long(name) => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_length_are_what_they_were() {
        for length in 0..100 {
            let text = "é".repeat(length / 2) + &"x".repeat(length % 2);
            let name = Name::new(&text);
            assert_eq!(name.text(), text);
            assert!(name.is(&text) && !name.is(&(text.clone() + "x")));
            assert_eq!(matches!(name, Name::Short { .. }), length <= SHORT_MAX);
        }
    }
}
