//! The text of a run and its folder: the sections `[data]` and `[run]`.

use crate::names::names;
use crate::sample_spec::SampleSpec;
use crate::secret::Secret;
use crate::trusted::{Requests, Trusted};
use std::fmt;
use std::path::{Path, PathBuf};

use mesh::PlacementOrder;

/// How text becomes tokens: the key `data.tokenizer`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenizerSpec {
    /// `"bytes"`: every byte is a token.
    Bytes,
    /// `"bpe:2048"`: a byte-level byte-pair encoding of this many tokens, trained on the training text when the run
    /// starts.
    Bpe {
        /// Tokens, the 256 bytes among them.
        vocabulary: usize,
    },
    /// `"path/tokenizer.json"`: a tokenizer in the format of the Hugging Face library.
    File(PathBuf),
    /// `"of the token files"`: the one that the token files were made with.
    OfTokenFiles,
}

const BYTES: &str = "bytes";
const OF_TOKEN_FILES: &str = "of the token files";

impl TokenizerSpec {
    /// How a tokenizer is written, as the rest of a sentence that begins with "is not".
    pub const FORMS: &str =
        "\"bytes\", \"bpe:\" and a number of tokens as in \"bpe:2048\", or a path such as \"tokenizer.json\"";

    /// Reads what [`fmt::Display`] writes; `None` for anything else.
    pub fn parse(text: &str) -> Option<TokenizerSpec> {
        if let Some(size) = text.strip_prefix("bpe:") {
            // Counts are below 2^31 wherever they are read.
            let vocabulary = size.parse::<i32>().ok().and_then(|vocabulary| usize::try_from(vocabulary).ok())?;
            return Some(TokenizerSpec::Bpe { vocabulary });
        }
        match text {
            BYTES => Some(TokenizerSpec::Bytes),
            OF_TOKEN_FILES => Some(TokenizerSpec::OfTokenFiles),
            path => {
                let is_file = Path::new(path).extension().is_some_and(|extension| extension == "json");
                is_file.then(|| TokenizerSpec::File(path.into()))
            }
        }
    }

    /// Number of different tokens, if it can be known without reading a file.
    pub fn vocabulary(&self) -> Option<usize> {
        match self {
            TokenizerSpec::Bytes => Some(256),
            TokenizerSpec::Bpe { vocabulary } => Some(*vocabulary),
            TokenizerSpec::File(_) | TokenizerSpec::OfTokenFiles => None,
        }
    }
}

impl fmt::Display for TokenizerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenizerSpec::Bytes => f.write_str(BYTES),
            TokenizerSpec::Bpe { vocabulary } => write!(f, "bpe:{vocabulary}"),
            TokenizerSpec::File(path) => write!(f, "{}", path.display()),
            TokenizerSpec::OfTokenFiles => f.write_str(OF_TOKEN_FILES),
        }
    }
}

/// The texts of the tokens that begin and end documents; empty for none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// `data.begin`.
    pub begin: String,
    /// `data.end`.
    pub end: String,
}

/// One source of text.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    /// A text file, JSON lines, a table, a folder or a pattern of them, a token file (`*.tokens`), or Megatron-LM's
    /// pair (`*.idx` and `*.bin`).
    pub path: PathBuf,
    /// Its sequences among those of all sources are in proportion to this.
    pub weight: f32,
    /// The field of JSON lines, or the column of tables; `None` for the first of the usual ones.
    pub column: Option<String>,
}

impl SourceSpec {
    /// The source at `path`, of weight 1.
    pub fn of(path: impl Into<PathBuf>) -> SourceSpec {
        SourceSpec { path: path.into(), weight: 1.0, column: None }
    }

    /// Whether its text has become tokens before the run.
    pub fn is_tokens(&self) -> bool {
        self.path.extension().is_some_and(|extension| ["tokens", "idx", "bin"].iter().any(|known| extension == *known))
    }
}

/// The tokens that a token attends to: the key `data.visible`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visible {
    /// `"past"`: everything before it, other documents too.
    Past,
    /// `"document"`: what is before it in its own document. The last token of a document has no target, since what
    /// follows is not its continuation.
    Document,
}

names! { Visible: "past" = Past, "document" = Document }

/// The start from which positions are counted: the key `data.positions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Positions {
    /// `"sequence"`: from the beginning of the sequence.
    Sequence,
    /// `"document"`: from the beginning of the token's document, or of the sequence where the document began before it.
    Document,
}

names! { Positions: "sequence" = Sequence, "document" = Document }

/// Files of a folder or a pattern that cannot be read: the key `data.odd_files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OddFiles {
    /// `"refuse"`: an error that names all of them.
    Refuse,
    /// `"skip"`: each is reported and left out.
    Skip,
}

names! { OddFiles: "refuse" = Refuse, "skip" = Skip }

/// The label of a place that has no target: its loss and its gradient are zero, and it does not count.
pub const IGNORED_LABEL: i32 = -100;

/// Blanks that are filled, in place of predicting each next token: the key `data.blanks`, GLM-130B's objective (Zeng et
/// al. 2022, section 2.2).
#[derive(Clone, Debug, PartialEq)]
pub struct BlanksSpec {
    /// The token that stands for a span: `[MASK]`.
    pub mask: usize,
    /// The token that stands for the rest of a text: `[gMASK]`.
    pub gmask: usize,
    /// The token that what fills a blank begins with.
    pub sop: usize,
    /// The token that it ends with.
    pub eop: usize,
    /// Share of the sequences of text in which spans are blank; in the others it is the rest.
    pub span_share: f32,
    /// Lengths of spans are drawn from a Poisson distribution of this mean, without the length 0.
    pub span_mean: f32,
    /// Share of a sample's tokens in its spans.
    pub span_tokens: f32,
    /// Samples of one sequence, which do not see each other, where spans are blank or instructions are followed.
    pub samples: usize,
    /// Tasks with answers among the sequences.
    pub instructions: Option<InstructionsSpec>,
}

/// Tasks in words, with their answers.
#[derive(Clone, Debug, PartialEq)]
pub struct InstructionsSpec {
    /// JSON lines with an `input` and a `target` each; `None` for the few that are part of the program.
    pub path: Option<PathBuf>,
    /// Share of the sequences that they have.
    pub share: f32,
}

/// Conversations as the text of a run, of which answers are learned: the key `data.chat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatSpec {
    /// The folder of a model with its chat template, or a file `*.jinja`; empty where nothing names one.
    pub template: PathBuf,
    /// The date that a template reads; without it, a template that asks for the time is refused.
    pub date: Option<ChatDate>,
    /// Conversations that are longer than a sequence.
    pub long: LongConversations,
    /// Conversations of which the template writes earlier answers otherwise than the last.
    pub rewritten: RewrittenAnswers,
}

/// Conversations of which the template writes an answer otherwise once more messages follow: `rewritten` of the key
/// `data.chat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewrittenAnswers {
    /// `"split"`: each answer is learned in a text of its own, which ends with it.
    Split,
    /// `"refuse"`: an error that names the first such conversation.
    Refuse,
}

names! { RewrittenAnswers: "split" = Split, "refuse" = Refuse }

/// Conversations that are longer than a sequence: `long` of the key `data.chat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongConversations {
    /// `"refuse"`: an error that names the first.
    Refuse,
    /// `"cut"`: a conversation keeps its first tokens.
    Cut,
}

names! { LongConversations: "refuse" = Refuse, "cut" = Cut }

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChatDate {
    /// From 1 to 9999.
    pub year: u16,
    /// From 1 to 12.
    pub month: u8,
    /// From 1 to the length of the month.
    pub day: u8,
}

impl ChatDate {
    /// Reads what [`fmt::Display`] writes; `None` for anything else, or a day that does not exist.
    pub fn parse(text: &str) -> Option<ChatDate> {
        let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.split('-');
        let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !digits(year, 4) || !digits(month, 2) || !digits(day, 2) {
            return None;
        }
        let date = ChatDate { year: year.parse().ok()?, month: month.parse().ok()?, day: day.parse().ok()? };
        (date.year > 0 && date.day > 0 && date.day <= date.days_of_month()?).then_some(date)
    }

    /// The day of the year, counted from 1.
    pub fn day_of_year(self) -> u16 {
        let before = (1..self.month).filter_map(|month| ChatDate { month, ..self }.days_of_month());
        before.map(u16::from).sum::<u16>() + u16::from(self.day)
    }

    /// The day of the week, counted from Monday as 0.
    pub fn weekday(self) -> u8 {
        // 0001-01-01 is a Monday.
        let years = u32::from(self.year) - 1;
        let days = years * 365 + years / 4 - years / 100 + years / 400 + u32::from(self.day_of_year()) - 1;
        (days % 7) as u8
    }

    fn days_of_month(self) -> Option<u8> {
        let is_leap = self.year.is_multiple_of(4) && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => Some(31),
            4 | 6 | 9 | 11 => Some(30),
            2 => Some(if is_leap { 29 } else { 28 }),
            _ => None,
        }
    }
}

impl fmt::Display for ChatDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// The text of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct DataSpec {
    /// `data.sources`, or the one `data.path`; none for the corpus that is part of the program.
    pub sources: Vec<SourceSpec>,
    /// How it becomes tokens.
    pub tokenizer: TokenizerSpec,
    /// The text of the token that begins each document and each prompt; empty for none.
    pub begin: String,
    /// The text of the token that ends each document, and a text that is generated; empty for none.
    pub end: String,
    /// The tokens that a token attends to.
    pub visible: Visible,
    /// The start from which its position is counted.
    pub positions: Positions,
    /// Blanks to fill; `None` where every token is to be predicted from those before it.
    pub blanks: Option<BlanksSpec>,
    /// How conversations become text; `None` where documents are text.
    pub chat: Option<ChatSpec>,
    /// Files of folders and patterns that cannot be read.
    pub odd_files: OddFiles,
    /// Share of the text of each source, by whole documents, that is measured on and never trained on: `data.held_out`.
    pub held_out: f32,
    /// Texts of their own to measure on, each with a name: `data.validation`.
    pub validation: Vec<ValidationSpec>,
    /// The folder of token files that runs make of their text: `data.cache`.
    pub cache: Option<Trusted<PathBuf>>,
    /// Permission to send requests to the addresses among the texts; `None` where someone else may have named one.
    pub requests: Option<Trusted<Requests>>,
}

impl DataSpec {
    /// The tokens around documents.
    pub fn marks(&self) -> Marks {
        Marks { begin: self.begin.clone(), end: self.end.clone() }
    }

    /// The sources, and after them the texts of validation.
    pub fn texts(&self) -> impl Iterator<Item = &SourceSpec> {
        self.sources.iter().chain(self.validation.iter().map(|text| &text.source))
    }

    /// Returns the same as [`DataSpec::texts`].
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut SourceSpec> {
        self.sources.iter_mut().chain(self.validation.iter_mut().map(|text| &mut text.source))
    }
}

/// A text that is measured on, and never trained on.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidationSpec {
    /// The name of its losses.
    pub name: String,
    /// The text; its weight does not matter.
    pub source: SourceSpec,
}

/// Where the ranks of a run are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineChoice {
    /// In the processes that a launcher started, or in one process where none did.
    #[default]
    Auto,
    /// In one process, whoever started it.
    Threads,
    /// In the processes that a launcher started; without one the run is refused.
    Processes,
}

names! { EngineChoice: "auto" = Auto, "threads" = Threads, "processes" = Processes }

/// The way between ranks of different processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory within a host, TCP between hosts.
    #[default]
    Auto,
    /// Shared memory; all processes must be on one host.
    SharedMemory,
    /// TCP, also within a host.
    Tcp,
    /// A library of MPI, opened at run time; sockets meet and carry short messages.
    Mpi,
}

names! { TransportChoice: "auto" = Auto, "shared-memory" = SharedMemory, "tcp" = Tcp, "mpi" = Mpi }

/// The device of ranks: the key `run.device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Cores of this machine.
    #[default]
    Cpu,
    /// GPUs of NVIDIA, through the driver's library, which is opened at run time.
    Cuda,
}

names! { DeviceChoice: "cpu" = Cpu, "cuda" = Cuda }

/// Which collectives join the ranks of different processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CollectivesChoice {
    /// Pleach's own over messages between two ranks: the bits of threads.
    #[default]
    Own,
    /// The collectives of the library of MPI, whose sums have an order of their own.
    Native,
}

names! { CollectivesChoice: "own" = Own, "native" = Native }

/// How ranks on GPUs of their own, in processes of their own, join tensors: the key `run.gpu_collectives`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuCollectives {
    /// By NCCL where each rank has a process and a GPU of its own and every host has the library, else by way of the
    /// host.
    #[default]
    Auto,
    /// By way of the host.
    Host,
    /// By NCCL, or not at all.
    Nccl,
}

names! { GpuCollectives: "auto" = Auto, "host" = Host, "nccl" = Nccl }

/// How ranks on GPUs launch their kernels: the key `run.gpu_graphs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuGraphs {
    /// Those that come again and again as graphs, where the driver has them.
    #[default]
    Auto,
    /// One by one.
    Off,
}

names! { GpuGraphs: "auto" = Auto, "off" = Off }

/// Which algorithm of the GPU's library computes a product: the key `run.product_algorithms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProductAlgorithms {
    /// The first one that the library proposes.
    #[default]
    First,
    /// The fastest of those that it proposes, timed before the first step and kept in the folder of the run.
    Timed,
    /// The fastest of those whose results had the bits of products in blocks of 16 on random numbers, and of pleach's
    /// kernels, likewise.
    Equal,
}

names! { ProductAlgorithms: "first" = First, "timed" = Timed, "equal" = Equal }

/// How the kernel of a product in blocks of 16 is chosen on a GPU: the key `run.product_kernels`. All of them have the
/// same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProductKernels {
    /// By times of those that have run on a GPU, on a GPU of NVIDIA; by the estimate on one in software.
    #[default]
    Auto,
    /// By times of an H200.
    Estimated,
    /// By times before the first step.
    Timed,
}

names! { ProductKernels: "auto" = Auto, "estimated" = Estimated, "timed" = Timed }

/// Whose kernels compute attention where products are those of the device: the key `run.attention_library`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttentionChoice {
    /// The library's, where it is there and has the attention.
    #[default]
    Auto,
    /// pleach's.
    Off,
}

names! { AttentionChoice: "auto" = Auto, "off" = Off }

/// How much of what ranks compute and keep is checked for bits that are silently wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recheck {
    /// Nothing.
    Off,
    /// Blocks of state and operations, as many as cost about 1 % of a step.
    Sample,
    /// All state, and every operation twice.
    All,
}

names! { Recheck: "sample" = Sample, "off" = Off, "all" = All }

/// The answer to a host that does not answer any more, where `pleach launch` started the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The run ends.
    Stop,
    /// It continues once the host answers again.
    Wait,
    /// It continues without the host, in another layout.
    Replan,
}

names! { OnLoss: "stop" = Stop, "wait" = Wait, "replan" = Replan }

/// Where a run writes, and on how many ranks it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSpec {
    /// Folder for everything that the run leaves.
    pub folder: Trusted<PathBuf>,
    /// Texts that are generated between steps.
    pub samples: SampleSpec,
    /// Ranks: the product of the degrees.
    pub ranks: usize,
    /// Threads that compute for each rank: its own and those of its pool.
    pub threads_per_rank: usize,
    /// The device of its ranks.
    pub device: DeviceChoice,
    /// GPUs of each host that its ranks share, the first ones; `None` for all that there are.
    pub gpus: Option<usize>,
    /// How ranks on GPUs of different processes join tensors.
    pub gpu_collectives: GpuCollectives,
    /// How ranks on GPUs launch kernels.
    pub gpu_graphs: GpuGraphs,
    /// Which algorithms of the GPU's library compute products.
    pub product_algorithms: ProductAlgorithms,
    /// How kernels of products are chosen.
    pub product_kernels: ProductKernels,
    /// Whose kernels compute attention.
    pub attention_library: AttentionChoice,
    /// Steps from one measurement on held-out text to the next; 0 measures after the last step only.
    pub evaluate_every: u32,
    /// Tokens of each text that are measured at once, the first ones; 0 for all of them, `None` for as many as cost a
    /// tenth of the run at most.
    pub evaluate_tokens: Option<u64>,
    /// Steps from one line on the screen and in the log to the next; 0 leaves that to the screen.
    pub log_every: u32,
    /// Steps from one checkpoint to the next; 0 saves at the end only, whatever ends the run.
    pub save_every: u32,
    /// Steps from one checkpoint in the memory of hosts to the next; 0 for none.
    pub memory_every: u32,
    /// This many of the newest checkpoints are kept,
    pub keep_newest: usize,
    /// those of steps that are a multiple of this, for ever (0: none),
    pub keep_every: u32,
    /// and this many of those with the least held-out loss.
    pub keep_best: usize,
    /// The address in an object store to which checkpoints are copied, `s3://bucket/prefix`.
    pub store: Option<Trusted<String>>,
    /// How long a request to the store is tried again, and how long the end of a run waits for uploads.
    pub store_seconds: f32,
    /// Whether ranks are threads of one process or belong to several.
    pub engine: EngineChoice,
    /// How bytes move between ranks of different processes.
    pub transport: TransportChoice,
    /// Whose collectives join the ranks of different processes.
    pub collectives: CollectivesChoice,
    /// Which ranks share a host.
    pub placement: PlacementOrder,
    /// Where process 0 serves the numbers of the run over HTTP: a port of its own address, or HOST:PORT.
    pub metrics_address: Option<Trusted<String>>,
    /// A command for a shell that is called on events of the run.
    pub notify: Option<Trusted<Secret>>,
    /// How much of what ranks compute and keep is checked for wrong bits.
    pub recheck: Recheck,
    /// The answer to the loss of a host.
    pub on_loss: OnLoss,
    /// Time after which a silent process counts as failed.
    pub heartbeat_seconds: f32,
    /// Time in which all processes of a run must arrive.
    pub rendezvous_seconds: f32,
    /// How long a run may take from a signal that stops it to its end.
    pub grace_seconds: f32,
    /// How long a rank waits for another before it fails.
    pub timeout_seconds: f32,
    /// Bytes that each rank has for its arena; `None` where all ranks share this machine's memory.
    pub rank_memory_bytes: Option<u64>,
}

names! {
    @of PlacementOrder:
    "tp-pp-dp" = TpPpDp, "tp-dp-pp" = TpDpPp, "pp-tp-dp" = PpTpDp, "pp-dp-tp" = PpDpTp, "dp-tp-pp" = DpTpPp,
    "dp-pp-tp" = DpPpTp, "cp-tp-pp-dp" = CpTpPpDp, "tp-pp-cp-dp" = TpPpCpDp, "tp-pp-dp-cp" = TpPpDpCp,
}
