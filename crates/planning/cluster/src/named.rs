//! The profiles that are part of the program.

const NAMED: &[(&str, &str)] = &[
    ("a100-80g-dgx", include_str!("../profiles/a100-80g-dgx.toml")),
    ("a100-40g-dgx", include_str!("../profiles/a100-40g-dgx.toml")),
    ("a100-80g-jean-zay", include_str!("../profiles/a100-80g-jean-zay.toml")),
    ("a100-vtrain", include_str!("../profiles/a100-vtrain.toml")),
    ("a100-80g-pcie", include_str!("../profiles/a100-80g-pcie.toml")),
    ("v100-32g-dgx1", include_str!("../profiles/v100-32g-dgx1.toml")),
    ("h100-80g-dgx", include_str!("../profiles/h100-80g-dgx.toml")),
    ("h100-96g-500w", include_str!("../profiles/h100-96g-500w.toml")),
    ("h200-141g-dgx", include_str!("../profiles/h200-141g-dgx.toml")),
    ("b200-180g-dgx", include_str!("../profiles/b200-180g-dgx.toml")),
    ("gb200-nvl72", include_str!("../profiles/gb200-nvl72.toml")),
    ("ascend-910", include_str!("../profiles/ascend-910.toml")),
    ("ascend-910b", include_str!("../profiles/ascend-910b.toml")),
];

/// The names of the profiles that are part of the program.
pub fn names() -> impl Iterator<Item = &'static str> {
    NAMED.iter().map(|(name, _)| *name)
}

/// The profile of this name, as text; `None` for a name that is not one of [`names`].
pub fn named(name: &str) -> Option<&'static str> {
    NAMED.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
