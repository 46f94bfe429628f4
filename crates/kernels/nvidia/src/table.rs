//! Tables of C functions: one declaration gives the pointer's type, its binding by name and its prototype in C++.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_void};

/// A type with the spelling that NVIDIA's headers give it.
pub(crate) trait CType {
    /// The type in C++.
    fn c() -> String;
}

macro_rules! c_types {
    ($($rust:ty = $c:literal),* $(,)?) => {
        $(impl CType for $rust {
            fn c() -> String {
                $c.into()
            }
        })*
    };
}

c_types!(
    c_char = "char",
    c_int = "int",
    c_uint = "unsigned int",
    c_uchar = "unsigned char",
    u64 = "unsigned long long",
    usize = "size_t",
    f32 = "float",
    c_void = "void",
    () = "void",
);

impl<T: CType> CType for *mut T {
    fn c() -> String {
        format!("{}*", T::c())
    }
}

impl<T: CType> CType for *const T {
    fn c() -> String {
        format!("{} const*", T::c())
    }
}

/// A function's name for a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The exported symbol.
    pub(crate) symbol: &'static str,
    /// For a function of the driver: the version of CUDA in which its declaration took this form. The driver gives the
    /// same function for the symbol without its suffix and this version.
    pub(crate) since: Option<u32>,
}

/// The address of a function that a loader has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Symbol(pub(crate) std::ptr::NonNull<c_void>);

/// A function of a table, as its library's header declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The exported symbol.
    pub symbol: &'static str,
    /// The type of the function in C++, with `(*)` where its name would be.
    pub pointer: String,
    /// The version of CUDA in which a function of the driver took this form: 3020 for 3.2.
    pub since: Option<u32>,
    /// The types of the result and of the arguments, with the size that they have here.
    pub types: Vec<(String, usize)>,
}

/// Declares a type of a header: a number, or an address without a meaning here.
macro_rules! named {
    ($($(#[$attribute:meta])* $name:ident($inner:ty) = $c:literal;)*) => {
        $(
            $(#[$attribute])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[repr(transparent)]
            pub(crate) struct $name(pub(crate) $inner);

            impl $crate::table::CType for $name {
                fn c() -> String {
                    $c.into()
                }
            }

            // SAFETY: a number, or an address that this process reads nothing from; NVIDIA's libraries accept it from
            // any thread.
            unsafe impl Send for $name {}
            // SAFETY: as above.
            unsafe impl Sync for $name {}
        )*
    };
}

macro_rules! since {
    () => {
        None
    };
    ($version:literal) => {
        Some($version)
    };
}

/// Declares a table of functions: `field = "symbol": (arguments) -> result;`, with `since N` before the colon for the
/// driver.
macro_rules! functions {
    ($(#[$attribute:meta])* $table:ident {
        $($(#[$doc:meta])* $field:ident = $symbol:literal $(since $version:literal)?: ($($argument:ty),*) -> $result:ty;)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Binds every function, or returns the first error of `resolve`.
            pub(crate) fn bind<E>(
                mut resolve: impl FnMut($crate::table::Name) -> Result<$crate::table::Symbol, E>,
            ) -> Result<$table, E> {
                Ok($table {
                    // SAFETY: the address is that of the function with this symbol, and a test compares the type with
                    // the declaration in NVIDIA's header.
                    $($field: unsafe { std::mem::transmute::<
                        std::ptr::NonNull<std::ffi::c_void>,
                        unsafe extern "C" fn($($argument),*) -> $result,
                    >(resolve($crate::table::Name {
                        symbol: $symbol,
                        since: $crate::table::since!($($version)?),
                    })?.0) },)*
                })
            }

            /// All declarations.
            pub(crate) fn declarations() -> Vec<$crate::table::Declaration> {
                use $crate::table::CType;
                vec![$({
                    let arguments: Vec<String> = vec![$(<$argument>::c()),*];
                    let pointer = format!("{} (*)({})", <$result>::c(), arguments.join(", "));
                    let since = $crate::table::since!($($version)?);
                    let mut types = vec![
                        (<$result>::c(), size_of::<$result>()),
                        $((<$argument>::c(), size_of::<$argument>())),*
                    ];
                    // Nothing has no size in C++.
                    types.retain(|(_, size)| *size > 0);
                    $crate::table::Declaration { symbol: $symbol, pointer, since, types }
                }),*]
            }
        }
    };
}

pub(crate) use {functions, named, since};
