//! Attributes of tests that need a tool. Where the build has not found it, the test is ignored, with a reason that
//! `cargo test` prints; with `--include-ignored` it fails there and names the tool. `build.rs` looks for the tools.
//!
//! ```text
//! #[needs::moto]
//! #[test]
//! fn a_server_of_others_has_the_same() {}
//! ```

#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// Defines an attribute for each tool: its name, the condition that `build.rs` sets, and the reason of an ignored test,
/// "needs TOOL: REMEDY".
macro_rules! attributes {
    ($($name:ident, $condition:ident, $reason:literal;)*) => {$(
        /// A test whose tool may be missing:
        #[doc = $reason]
        #[proc_macro_attribute]
        pub fn $name(_: TokenStream, test: TokenStream) -> TokenStream {
            checked(test, |test| if cfg!($condition) { test } else { ignored($reason, test) })
        }
    )*};
}

attributes! {
    cuda, has_cuda, "needs CUDA: run tools/install-cuda.sh, then set PLEACH_CUDA=$PWD/target/cuda";
    cudnn, has_cudnn, "needs cuDNN: run tools/install-cuda.sh, then set PLEACH_CUDA=$PWD/target/cuda";
    no_gpu, has_no_gpu, "needs no GPU: its errors are those of a machine without NVIDIA's driver and libraries";
    avx512, has_avx512, "needs AVX-512: tools/emulate-avx512.sh emulates a processor that has it";
    avx512_bf16, has_avx512_bf16, "needs VDPBF16PS: a processor with AVX-512 BF16, such as AMD's since Zen 4";
    clang, has_clang, "needs clang 19: apt-get install clang-19, then set PLEACH_CLANG=clang++-19";
    mpi, has_mpi, "needs MPI: run tools/install-mpi.sh, then set PLEACH_MPI=1";
    slurm, has_slurm, "needs Slurm: as root, apt-get install slurm-wlm munge, then set PLEACH_SLURM=1";
    namespaces, has_namespaces, "needs namespaces: as root, apt-get install iproute2, then set PLEACH_NETWORK=1";
    root, has_root, "needs root: processes of another user are started";
    tmux, has_tmux, "needs tmux: apt-get install tmux, then set PLEACH_TMUX=tmux";
    chromium, has_chromium, "needs Chromium: apt-get install chromium, then set PLEACH_CHROMIUM=chromium";
    dejavu, has_dejavu, "needs DejaVu Sans: apt-get install fonts-dejavu-core fontconfig, then set PLEACH_CHROMIUM";
    python, has_python, "needs Python 3.11: install it, then set PLEACH_PYTHON=python3";
    python_packages, has_python_packages, "needs Python's packages: pip install numpy pandas tensorboard xxhash, then set PLEACH_PYTHON";
    moto, has_moto, "needs moto: run tools/install-moto.sh, then set PLEACH_S3=$PWD/target/moto";
    chats, has_chats, "needs chat templates: run tools/install-chats.sh, then set PLEACH_CHATS=$PWD/target/chats";
}

/// The number of cases of a test that draws them: `PLEACH_CASES`, or the number that is given where that is not set, or
/// is `all`. Fails where the variable is anything else.
#[proc_macro]
pub fn cases(sample: TokenStream) -> TokenStream {
    let number = "cases.parse().expect(\"PLEACH_CASES must be a number of cases, or all\")";
    let given = "::std::env::var(\"PLEACH_CASES\").ok().filter(|cases| cases != \"all\")";
    expression(&format!("{given}.map_or({sample}, |cases| {number})"))
}

/// Whether a test that has a sample of its cases does all of them: as `PLEACH_CASES=all` says.
#[proc_macro]
pub fn all_cases(_: TokenStream) -> TokenStream {
    expression("::std::env::var_os(\"PLEACH_CASES\").is_some_and(|cases| cases == \"all\")")
}

/// `text` as an expression.
fn expression(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}

/// The test that `make` makes, or an error where `#[test]` is not below the attribute: it would not see that the test
/// is ignored.
fn checked(test: TokenStream, make: impl Fn(TokenStream) -> TokenStream) -> TokenStream {
    if has_attribute(&test, "test") {
        return make(test);
    }
    let message = Literal::string("an attribute of crate `needs` must be above #[test]");
    let call: [TokenTree; 3] = [
        Ident::new("compile_error", Span::call_site()).into(),
        Punct::new('!', Spacing::Alone).into(),
        Group::new(Delimiter::Brace, TokenTree::from(message).into()).into(),
    ];
    call.into_iter().collect()
}

/// The test with the reason, unless another tool is missing, too.
fn ignored(reason: &str, test: TokenStream) -> TokenStream {
    if has_attribute(&test, "ignore") {
        return test;
    }
    let attribute: [TokenTree; 3] = [
        Ident::new("ignore", Span::call_site()).into(),
        Punct::new('=', Spacing::Alone).into(),
        Literal::string(reason).into(),
    ];
    let attribute = Group::new(Delimiter::Bracket, attribute.into_iter().collect());
    let tokens: [TokenTree; 2] = [Punct::new('#', Spacing::Alone).into(), attribute.into()];
    tokens.into_iter().collect::<TokenStream>().into_iter().chain(test).collect()
}

/// Whether an attribute with this name is above the item.
fn has_attribute(item: &TokenStream, name: &str) -> bool {
    let mut tokens = item.clone().into_iter();
    tokens.any(|token| match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
            group.stream().into_iter().next().is_some_and(|first| first.to_string() == name)
        }
        TokenTree::Group(_) | TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}
