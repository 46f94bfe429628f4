//! Tables of C functions: one declaration gives the pointer's type, its binding by name and its prototype in C++.

use std::ffi::{c_char, c_int, c_uint, c_void};

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
    u64 = "unsigned long long",
    usize = "size_t",
    f32 = "float",
    c_void = "void",
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
        )*
    };
}

/// Declares a table of functions: `field = "symbol": (arguments) -> result;`.
macro_rules! functions {
    ($(#[$attribute:meta])* $table:ident {
        $($(#[$doc:meta])* $field:ident = $symbol:literal: ($($argument:ty),*) -> $result:ty;)*
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy)]
        pub(crate) struct $table {
            $($(#[$doc])* pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl $table {
            /// Binds every function, or returns the first error of `resolve`.
            pub(crate) fn bind<E>(
                mut resolve: impl FnMut(&'static str) -> Result<$crate::table::Symbol, E>,
            ) -> Result<$table, E> {
                Ok($table {
                    // SAFETY: the address is that of the function with this symbol, and a test compares the type with
                    // the declaration in NVIDIA's header.
                    $($field: unsafe { std::mem::transmute::<
                        std::ptr::NonNull<std::ffi::c_void>,
                        unsafe extern "C" fn($($argument),*) -> $result,
                    >(resolve($symbol)?.0) },)*
                })
            }

            /// All declarations.
            pub(crate) fn declarations() -> Vec<$crate::table::Declaration> {
                use $crate::table::CType;
                vec![$({
                    let arguments: Vec<String> = vec![$(<$argument>::c()),*];
                    let pointer = format!("{} (*)({})", <$result>::c(), arguments.join(", "));
                    $crate::table::Declaration { symbol: $symbol, pointer }
                }),*]
            }
        }
    };
}

pub(crate) use {functions, named};
