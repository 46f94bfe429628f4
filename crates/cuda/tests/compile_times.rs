use cuda::code::OPTIONS;
use cuda::kernels::SOURCES;
use nvidia::Search;
use nvidia::nvrtc::{Compiler, Source, Target};
use std::path::PathBuf;
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let rest: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (rest[11].parse::<f64>().unwrap() + rest[12].parse::<f64>().unwrap()) / 100.0
}
#[test]
fn times() {
    let folder = std::env::var_os("PLEACH_CUDA").unwrap();
    let compiler = Compiler::open(&Search::only([PathBuf::from(folder)])).unwrap();
    for target in ["compute_80", "compute_90a", "sm_80", "sm_90a", "sm_100a", "sm_120a"] {
        let mut total = 0.0;
        let t: Target = target.parse().unwrap();
        for source in SOURCES.iter().filter(|s| s.is_for(&t)) {
            let text = Source::new(format!("{}.cu", source.name), source.whole());
            let before = cpu();
            let c = compiler.compile(&text, &t, OPTIONS).unwrap();
            let took = cpu() - before;
            total += took;
            println!("{target} {} {took:.2} ptx {}", source.name, c.code.ptx().map_or(0, |p| p.len()));
        }
        println!("TOTAL {target} {total:.2}");
    }
}
