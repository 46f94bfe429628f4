//! Products of groups of rows: kernels/expert_mat_mul.cu and kernels/expert_mat_mul_blocks.cu. One launch has the tiles
//! of all groups: of rows, as many as groups of any sizes can need. A block finds its group by the offsets, and ends
//! where there are fewer tiles.

use config::Products;
use device::{DeviceError, Dtype, ExpertRows, Orientation, Tensor, TokenRange, Write};
use gpu::LaunchShape;

use crate::launch::mat_mul_blocks::{Loading, Narrow};
use crate::launch::{Launch, Parameters, Place, Site, Stored, other_products, require};

/// The tensors of `ExpertOp::MatMul`.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupProduct {
    pub orientation: Orientation,
    pub a: Tensor,
    pub b: Tensor,
    pub out: Tensor,
    pub rows: ExpertRows,
    pub tokens: Option<TokenRange>,
    pub write: Write,
}

const OP: &str = "expert_mat_mul";

/// `ExpertOp::MatMul`
pub(super) fn mat_mul(site: &Site, product: &GroupProduct) -> Result<Vec<Launch>, DeviceError> {
    let GroupProduct { a, b, out, write, .. } = *product;
    let types = [Stored::of(a)?, Stored::of(b)?, Stored::of(out)?];
    let places = [site.matrix(a, a.dtype)?, site.matrix(b, b.dtype)?];
    let to = site.matrix(out, out.dtype)?;
    let form = match site.products {
        Products::Chained => Form::Chains,
        Products::Blocks16 | Products::Blocks8 | Products::Device => Form::Blocks(Narrow::of([a, b])?),
        Products::Pairs => return Err(other_products(OP, site.products)),
    };
    product.check()?;
    let parameters = match form {
        Form::Chains => {
            Parameters::new().words(&types.map(|stored| stored.number)).place(places[0]).place(places[1]).place(to)
        }
        Form::Blocks(_) => Parameters::new()
            .place(places[0])
            .u32(Loading::of(a, places[0]) as u32)
            .place(places[1])
            .u32(Loading::of(b, places[1]) as u32)
            .place(to)
            .u32(types[2].number),
    };
    let (slots, of_tokens) = product.tokens(site)?;
    let parameters = parameters
        .flag(write == Write::Accumulate)
        .place(site.dense(product.rows.offsets, Dtype::I32)?.as_vector())
        .place(slots)
        .words(&of_tokens);
    if out.is_empty() {
        return Ok(vec![]);
    }
    let tile = Tile::of(site, product);
    Ok(vec![Launch::new(form.kernel(product.orientation, tile), product.shape(form, tile), parameters)])
}

impl GroupProduct {
    fn check(&self) -> Result<(), DeviceError> {
        let GroupProduct { orientation, a, b, out, rows, .. } = *self;
        let groups = rows.offsets.len().saturating_sub(1);
        let (split, holds) = match orientation {
            Orientation::Nt => (b, a.cols == b.cols && out.rows == a.rows && groups * out.cols == b.rows),
            Orientation::Nn => (b, groups * a.cols == b.rows && out.rows == a.rows && out.cols == b.cols),
            Orientation::Tn => (out, a.rows == b.rows && groups * a.cols == out.rows && out.cols == b.cols),
        };
        require(groups > 0 && split.rows.is_multiple_of(groups) && holds, OP, || {
            format!("{orientation:?} of {a:?} and {b:?} in {groups} groups is not {out:?}")
        })
    }

    /// The slots, and those of the tokens that take part; none where all do.
    fn tokens(&self, site: &Site) -> Result<(Place, [u32; 2]), DeviceError> {
        let Some(TokenRange { start, end }) = self.tokens else { return Ok((Place::NONE, [0, 0])) };
        let slot = |token: usize| {
            let slot = token * self.rows.places.cols;
            let is_number = i32::try_from(slot).is_ok();
            require(is_number, OP, || format!("token {token} has slot {slot}: more than I32 counts"))?;
            Ok(slot as u32)
        };
        Ok((site.dense(self.rows.slots, Dtype::I32)?.as_vector(), [slot(start)?, slot(end)?]))
    }

    /// Rows and columns of a group's result, where all groups have equally many of the expected rows.
    fn sizes_of_group(&self) -> [usize; 2] {
        let groups = self.rows.groups();
        match self.orientation {
            Orientation::Nt | Orientation::Nn => [self.rows.expected.min(self.a.rows).div_ceil(groups), self.out.cols],
            Orientation::Tn => [self.out.rows / groups, self.out.cols],
        }
    }

    /// A block for each tile that there can be. R rows in groups of which each begins a tile need the most tiles where
    /// all groups but the largest one have one row more than whole tiles.
    fn shape(&self, form: Form, tile: Tile) -> LaunchShape {
        let (groups, side) = (self.rows.groups(), tile.side());
        let columns = self.out.cols.div_ceil(side);
        let grid = match self.orientation {
            Orientation::Nt | Orientation::Nn => {
                let (rows, begun) = (self.a.rows, groups.min(self.a.rows));
                [(rows + begun * (side - 1)) / side, columns, 1]
            }
            Orientation::Tn => [(self.out.rows / groups).div_ceil(side), columns, groups],
        };
        LaunchShape { grid: grid.map(|blocks| blocks as u32), block: [form.threads(tile), 1, 1], shared_bytes: 0 }
    }
}

/// The order in which terms are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Chains,
    Blocks(Narrow),
}

/// A square tile of the output, which a block computes. Tiles change no bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tile {
    Of128,
    Of64,
}

impl Tile {
    /// Large tiles read less; small ones fill the GPU where there are few, and have fewer rows that no token has.
    fn of(site: &Site, product: &GroupProduct) -> Tile {
        let [rows, cols] = product.sizes_of_group();
        let tiles = product.rows.groups() * rows.div_ceil(128) * cols.div_ceil(128);
        let is_filled = rows > 64 && cols > 64;
        if is_filled && tiles >= site.multiprocessors as usize { Tile::Of128 } else { Tile::Of64 }
    }

    fn side(self) -> usize {
        match self {
            Tile::Of128 => 128,
            Tile::Of64 => 64,
        }
    }
}

impl Form {
    fn threads(self, tile: Tile) -> u32 {
        match (self, tile) {
            (Form::Chains, Tile::Of128 | Tile::Of64) | (Form::Blocks(_), Tile::Of128) => 256,
            (Form::Blocks(_), Tile::Of64) => 128,
        }
    }

    fn kernel(self, orientation: Orientation, tile: Tile) -> &'static str {
        match (self, orientation, tile) {
            (Form::Chains, Orientation::Nt, Tile::Of128) => "expert_mat_mul_nt_128",
            (Form::Chains, Orientation::Nt, Tile::Of64) => "expert_mat_mul_nt_64",
            (Form::Chains, Orientation::Nn, Tile::Of128) => "expert_mat_mul_nn_128",
            (Form::Chains, Orientation::Nn, Tile::Of64) => "expert_mat_mul_nn_64",
            (Form::Chains, Orientation::Tn, Tile::Of128) => "expert_mat_mul_tn_128",
            (Form::Chains, Orientation::Tn, Tile::Of64) => "expert_mat_mul_tn_64",
            (Form::Blocks(Narrow::Bf16), Orientation::Nt, Tile::Of128) => "expert_mat_mul_blocks_nt_bf16_128",
            (Form::Blocks(Narrow::Bf16), Orientation::Nt, Tile::Of64) => "expert_mat_mul_blocks_nt_bf16_64",
            (Form::Blocks(Narrow::F16), Orientation::Nt, Tile::Of128) => "expert_mat_mul_blocks_nt_f16_128",
            (Form::Blocks(Narrow::F16), Orientation::Nt, Tile::Of64) => "expert_mat_mul_blocks_nt_f16_64",
            (Form::Blocks(Narrow::Bf16), Orientation::Nn, Tile::Of128) => "expert_mat_mul_blocks_nn_bf16_128",
            (Form::Blocks(Narrow::Bf16), Orientation::Nn, Tile::Of64) => "expert_mat_mul_blocks_nn_bf16_64",
            (Form::Blocks(Narrow::F16), Orientation::Nn, Tile::Of128) => "expert_mat_mul_blocks_nn_f16_128",
            (Form::Blocks(Narrow::F16), Orientation::Nn, Tile::Of64) => "expert_mat_mul_blocks_nn_f16_64",
            (Form::Blocks(Narrow::Bf16), Orientation::Tn, Tile::Of128) => "expert_mat_mul_blocks_tn_bf16_128",
            (Form::Blocks(Narrow::Bf16), Orientation::Tn, Tile::Of64) => "expert_mat_mul_blocks_tn_bf16_64",
            (Form::Blocks(Narrow::F16), Orientation::Tn, Tile::Of128) => "expert_mat_mul_blocks_tn_f16_128",
            (Form::Blocks(Narrow::F16), Orientation::Tn, Tile::Of64) => "expert_mat_mul_blocks_tn_f16_64",
        }
    }
}
