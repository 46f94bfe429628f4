//! `pleach import` and `pleach export`: runs from and as folders of the Hugging Face library.

use std::path::{Path, PathBuf};

use config::{ModelSpec, ParamSpec, Trusted, Unit, params};
use files::{InputKind, read_text_of_file, same_file};
use interchange::{Family, export, export_adapters, special_tokens};
use mesh::Region;
use run::failure::Failure;
use run::folder::run_folder::{Remedy, RunFolder};
use run::messages::stderr::tell;
use run::places::names::{RESUMES, WEIGHTS};
use run::source::hugging_face_run::{TOKENIZER_FILES, copy_tokenizer, is_folder, tokenizer_of};
use run::source::run_source::RunSource;
use train::{SourceError, TensorSink, TensorSource};

use crate::arguments::hugging_face::{ExportArguments, ExportedForm, ImportArguments};
use crate::convert::exported_folder::{EarlierExport, ExportedFolder};
use crate::convert::merged::MergedWeights;

/// Elements that are copied at once, or one row where that is wider.
const CHUNK_LEN: usize = 1 << 22;

/// Makes a run's folder of one of the library.
///
/// # Errors
/// A folder that cannot be used, or one that cannot be written.
pub fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let from = &arguments.from;
    if !is_folder(from) {
        let reason = format!("{} has no config.json of the Hugging Face library, or is a run's folder", from.display());
        return Err(Failure::Input(reason));
    }
    let source = RunSource::open(from, &[], &[])?;
    refuse_own_folder(&source.files(), from, &arguments.out)?;
    let mut config = source.config.clone();
    config.run.folder = Trusted::of_command_line(arguments.out.clone());
    let folder = RunFolder::open(&config.run, Remedy::OtherOut)?;
    folder.check_without_steps()?;
    let writer = folder.weights(&config.model)?;
    for_each_box(&config.model, |param, region, values| {
        source.weights.get(param, region, values).map_err(|error| Failure::Work(error.to_string()))?;
        TensorSink::put(&writer, param, region, values);
        Ok(())
    })?;
    writer.finish().map_err(|error| Failure::Work(error.to_string()))?;
    let copied = copy_tokenizer(from, folder.path())?;
    config.data.tokenizer = tokenizer_of(folder.path());
    folder.write_run_file(&config)?;
    let written = ["run.toml", WEIGHTS].into_iter().chain(copied).collect::<Vec<_>>().join(", ");
    tell(&format!("written {}: {written}\n", folder.path().display()));
    Ok(())
}

/// Makes a folder of the library of a run's.
///
/// # Errors
/// A run that cannot be read, a model that no class of the library has, a folder that cannot be written, and one that
/// has the run, the model that it began with or other files.
pub fn write(arguments: &ExportArguments) -> Result<(), Failure> {
    let (source, out) =
        (RunSource::open_weights(&arguments.from, arguments.weights.which(), &[], &[])?, &arguments.out);
    refuse_own_folder(&source.files(), &arguments.from, out)?;
    let base = base_of(&source.folder);
    if let Some(base) = base.as_deref().filter(|base| same_file(Path::new(base), out)) {
        let (out, run) = (out.display(), arguments.from.display());
        return Err(Failure::Input(format!(
            "--out {out} is {base}, the model that {run} was trained from; name another folder"
        )));
    }
    let was_there = out.exists();
    let folder = ExportedFolder::open(out, earlier(arguments))?;
    let written = write_form(&source, base.as_deref(), arguments).inspect_err(|_| {
        if !was_there {
            // Only where nothing is in it.
            let _ = std::fs::remove_dir(out);
        }
    });
    let (family, names) = written?;
    let copied = TOKENIZER_FILES.iter().copied().filter(|name| source.folder.join(name).is_file());
    folder.remove_earlier(&names.into_iter().chain(copied).collect::<Vec<_>>())?;
    copy_tokenizer(&source.folder, out)?;
    tell(&format!("written {}: {} in {} and {}\n", out.display(), family.class(), names[0], names[1]));
    Ok(())
}

/// [`ExportArguments::overwrite`] as a type.
fn earlier(arguments: &ExportArguments) -> EarlierExport {
    if arguments.overwrite { EarlierExport::Replaced } else { EarlierExport::Kept }
}

/// Writes the weights and their description. Returns the class and the names of both files.
fn write_form(
    source: &RunSource,
    base: Option<&str>,
    arguments: &ExportArguments,
) -> Result<(Family, [&'static str; 2]), Failure> {
    let (out, stored) = (&arguments.out, arguments.dtype.into());
    let failed = |error: SourceError| Failure::Work(error.to_string());
    match arguments.form {
        ExportedForm::Merged => {
            let merged = MergedWeights::new(&source.weights, &source.config.model);
            let read = |param: &ParamSpec, region: &Region, values: &mut [f32]| {
                merged.get(param, region, values).map_err(failed)
            };
            let family = export(&merged.model(), special_tokens::read(&source.folder)?, out, stored, read)?;
            Ok((family, [interchange::folder::CONFIG, interchange::folder::TENSORS]))
        }
        ExportedForm::Adapters => {
            let read = |param: &ParamSpec, region: &Region, values: &mut [f32]| {
                source.weights.get(param, region, values).map_err(failed)
            };
            let family = export_adapters(&source.config.model, base, out, stored, read)?;
            Ok((family, [interchange::ADAPTER_CONFIG, interchange::ADAPTER_TENSORS]))
        }
    }
}

/// The folder whose weights the run in `run` began with, as its record says.
fn base_of(run: &Path) -> Option<String> {
    let record = read_text_of_file(&run.join(RESUMES), InputKind::Records).ok()?;
    let mut from = record.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        line.get("from").and_then(serde_json::Value::as_str).map(str::to_string)
    });
    from.next_back()
}

/// An output must not replace what is read.
fn refuse_own_folder(files: &[PathBuf], from: &Path, out: &Path) -> Result<(), Failure> {
    // A file may be a link into the folder that is written.
    let places = files.iter().flat_map(|file| [Some(file.clone()), file.canonicalize().ok()]).flatten();
    let parents: Vec<PathBuf> = places.filter_map(|file| file.parent().map(Path::to_path_buf)).collect();
    let is_read = |folder: &Path| parents.iter().any(|parent| same_file(parent, folder));
    if same_file(from, out) || is_read(out) {
        let reason = format!(
            "--out {} is the folder of {}, which this command reads; name another folder",
            out.display(),
            from.display()
        );
        return Err(Failure::Input(reason));
    }
    Ok(())
}

/// Calls `copy` with every box of every parameter and room for its values.
fn for_each_box(
    model: &ModelSpec,
    mut copy: impl FnMut(&config::ParamSpec, &Region, &mut [f32]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut values = vec![];
    let units = Unit::holding(model.num_layers);
    for param in units.flat_map(|unit| params(model, unit)) {
        for region in interchange::stored_rows::row_chunks(&param.shape, CHUNK_LEN) {
            values.resize(region.len(), 0.0);
            copy(&param, &region, &mut values)?;
        }
    }
    Ok(())
}
