//! Names of topics in one allocation.

/// List of names, in one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameList {
    pub(super) text: String,
    ends: Vec<u32>,
}

impl NameList {
    /// Adds a name. The list holds names of one request, far below 4 GiB.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(u32::try_from(self.text.len()).unwrap_or(u32::MAX));
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let end = |end: &u32| usize::try_from(*end).unwrap_or(usize::MAX);
        let starts = std::iter::once(0).chain(self.ends.iter().map(end));
        let ranges = starts.zip(self.ends.iter().map(end));
        ranges.map(|(start, end)| self.text.get(start..end).unwrap_or_default())
    }
}

impl<'a> FromIterator<&'a str> for NameList {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut list = Self::default();
        for name in names {
            list.push(name);
        }
        list
    }
}
