//! Values that run files write as one of a few names, each said once, next to its type.

/// A value that has a name in run files.
pub trait Names: Copy + PartialEq + 'static {
    /// The names, with the value of each.
    const NAMES: &'static [(&'static str, Self)];
    /// The description of a list of them, as the rest of a sentence that begins with "is not".
    const LIST: &'static str = "";

    /// Its name.
    fn name_in_files(self) -> &'static str {
        Self::NAMES.iter().find(|(_, value)| *value == self).map_or("", |(name, _)| name)
    }

    /// The value of this name.
    fn of_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// The names of a type, in the order in which messages list them: `names! { Visible: "past" = Past }`; with `@of` for
/// one of another crate.
macro_rules! names {
    ($type:ident: $($name:literal = $variant:ident),+ $(,)? $(; $list:literal)?) => {
        impl $type {
            /// All of them, in the order of their names in messages.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// Its name in run files.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name),+
                }
            }
        }

        names! { @of $type: $($name = $variant),+ $(; $list)? }
    };
    (@of $type:ident: $($name:literal = $variant:ident),+ $(,)? $(; $list:literal)?) => {
        impl $crate::names::Names for $type {
            const NAMES: &'static [(&'static str, $type)] = &[$(($name, $type::$variant)),+];
            $(const LIST: &'static str = $list;)?
        }
    };
}

pub(crate) use names;
