//! Map of the device's memory.

use takt_link_camera::Intrinsics;

use super::layout::{
    BlobRecord, CameraBlock, CandidateRecord, Gather, ItemSum, Look, MAX_ITEMS, MAX_PEOPLE, Masks, People,
    Place, Places, Pose, Queries, Report, Window,
};
use super::network::DeviceNetwork;
use super::rig::Networks;
use crate::config::PerceptionConfig;
use crate::detector::{BoxForm, Column, Decoder, Reading, Table};
use crate::image::{Letterbox, Normalisation};
use crate::occupancy::Scene;

/// So many blobs and candidates come back with every frame; more, which is rare, in a second copy.
pub(super) const FIRST: usize = 256;
/// Offsets of the pieces of one camera's memory. The same offsets serve the pinned copies.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CameraPlaces {
    /// Copied in with every frame: the pose and its capsules.
    pub(super) pose: Place,
    pub(super) rgb: Place,
    pub(super) depth: Place,
    /// Copied in as one, when masks are wanted.
    pub(super) masks: Place,
    pub(super) windows: Place,
    pub(super) queries: Place,
    pub(super) people: Place,
    /// Copied out.
    pub(super) look: Place,
    pub(super) blob_records: Place,
    pub(super) candidates: Place,
    pub(super) report: Place,
    pub(super) paint: Place,
    pub(super) blob_capacity: usize,
    pub(super) candidate_capacity: usize,
    pub(super) cells: usize,
}

/// Parameters of one camera's memory.
pub(super) struct CameraPlan<'a> {
    pub(super) intrinsics: Intrinsics,
    pub(super) scene: &'a Scene,
}

/// Lays out the memory of one camera. Addresses in the block are offsets into the arena until it is
/// there.
pub(super) fn plan(
    all: &mut Places,
    config: &PerceptionConfig,
    camera: &CameraPlan,
    networks: &Networks,
    constants: &mut Vec<(Place, Vec<u8>)>,
) -> (CameraPlaces, CameraBlock) {
    let Intrinsics { width, height, .. } = camera.intrinsics;
    let pixels = camera.intrinsics.pixels();
    let step = config.occupancy.step_px;
    let (columns, rows) = (width.div_ceil(step), height.div_ceil(step));
    let cells = (columns * rows) as usize;
    let rank = config.occupancy.nearest_rank;
    let candidate_capacity = match &networks.detector {
        Some((network, reading, _)) => match reading.decoder {
            Decoder::Nanodet(heads) => {
                heads.heads.iter().map(|&(scores, ..)| network.outputs()[scores].1[1]).sum()
            }
            Decoder::Table(table) => table.rows,
        },
        None => 0,
    };
    let planes = networks.mask_size().map_or(0, |[height, width]| height * width);
    // A blob that counts has at least so many cells.
    let blob_capacity = cells / (config.occupancy.min_samples.max(1) as usize) + 1;
    let capsules = camera.scene.capsules_capacity();
    let fixtures: Vec<f32> = camera.scene.fixtures().iter().flat_map(corners).collect();
    let place = CameraPlaces {
        pose: all.take::<u8>(size_of::<Pose>() + capsules * 7 * size_of::<f32>()),
        rgb: all.take::<u8>(pixels * 3),
        depth: all.take::<u16>(pixels),
        masks: all.take::<Masks>(1),
        windows: all.take::<Window>(1 + MAX_PEOPLE),
        queries: all.take::<Queries>(1),
        people: all.take::<People>(1),
        look: all.take::<Look>(1),
        blob_records: all.take::<BlobRecord>(blob_capacity.max(FIRST)),
        candidates: all.take::<CandidateRecord>(candidate_capacity.max(FIRST)),
        report: all.take::<Report>(1),
        paint: all.take::<u8>(pixels),
        blob_capacity,
        candidate_capacity,
        cells,
    };
    let mut limit = |bytes: usize| all.take::<u8>(bytes);
    let mut constant = |values: &[f32]| {
        let place = limit(size_of_val(values));
        if !values.is_empty() {
            constants.push((place, bytemuck::cast_slice(values).to_vec()));
        }
        place.at as u64
    };
    let (slope_x, slope_y) = camera.scene.slopes();
    let (slope_x, slope_y, fixture_at) = (constant(slope_x), constant(slope_y), constant(&fixtures));
    let mut words = |count: usize| all.take::<u32>(count).at as u64;
    let block = CameraBlock {
        rgb: place.rgb.at as u64,
        depth: place.depth.at as u64,
        slope_x,
        slope_y,
        fixtures: fixture_at,
        pose: place.pose.at as u64,
        windows: place.windows.at as u64,
        masks: place.masks.at as u64,
        people: place.people.at as u64,
        queries: place.queries.at as u64,
        points: [words(cells), words(cells), words(cells)],
        blob_of: words(cells),
        piece_of: words(cells),
        owner: words(cells),
        unmasked: words(cells),
        scan_item: words(cells),
        scan_near: words(cells),
        keys: words(MAX_ITEMS * rank * 2),
        bins: words(MAX_ITEMS * 3 * 256),
        cell_depth: words(cells.div_ceil(2)),
        planes: words(planes * MAX_PEOPLE),
        blobs: all.take::<Gather>(cells).at as u64,
        pieces: all.take::<Gather>(cells).at as u64,
        items: all.take::<ItemSum>(MAX_ITEMS).at as u64,
        look: place.look.at as u64,
        blob_records: place.blob_records.at as u64,
        candidates: place.candidates.at as u64,
        report: place.report.at as u64,
        paint: place.paint.at as u64,
        area_scale: camera.scene.area_scale(step),
        width,
        height,
        step,
        columns,
        rows,
        cells: cells as u32,
        fixture_count: (fixtures.len() / 6) as u32,
        min_depth_mm: camera.scene.range_mm().0.into(),
        max_depth_mm: camera.scene.range_mm().1.into(),
        volume: corners(camera.scene.volume()),
        link2: config.occupancy.link_m * config.occupancy.link_m,
        min_area_m2: config.occupancy.min_area_m2,
        min_samples: config.occupancy.min_samples,
        rank: rank as u32,
        mask_threshold: config.segmenter.threshold,
        min_agreement: config.segmenter.min_agreement,
        person_class: config.detector.person_class as u32,
        threshold: config.detector.threshold,
        blob_capacity: blob_capacity as u32,
        candidate_capacity: candidate_capacity as u32,
        ..CameraBlock::default()
    };
    (place, block)
}

/// The whole image as the detector's input.
pub(super) fn detector_window(
    intrinsics: &Intrinsics,
    out: u64,
    reading: &Reading,
    [height, width]: [usize; 2],
) -> Window {
    let mut letterbox = Letterbox::new(width, height);
    letterbox.prepare(intrinsics.width, intrinsics.height);
    let (origin, scale) = letterbox.window();
    window([width, height], out, origin, scale, reading.normalisation)
}

/// A window of the image as an input of that size (width, height).
pub(super) fn window(
    [width, height]: [usize; 2],
    out: u64,
    origin: [f32; 2],
    scale: f32,
    norm: &Normalisation,
) -> Window {
    Window {
        out,
        width: width as u32,
        height: height as u32,
        origin,
        scale: [scale; 2],
        order: norm.order.map(|byte| byte as u32),
        mean: norm.mean,
        factor: norm.scale,
        padding: norm.padding,
    }
}

pub(super) fn corners(volume: &crate::occupancy::Volume) -> [f32; 6] {
    let (low, high) = (volume.min_m, volume.max_m);
    [low.x, low.y, low.z, high.x, high.y, high.z]
}

/// Makes addresses of offsets.
pub(super) fn relocate(block: &mut CameraBlock, base: u64) {
    let addresses = [
        &mut block.rgb,
        &mut block.depth,
        &mut block.slope_x,
        &mut block.slope_y,
        &mut block.fixtures,
        &mut block.pose,
        &mut block.windows,
        &mut block.masks,
        &mut block.people,
        &mut block.queries,
        &mut block.blob_of,
        &mut block.piece_of,
        &mut block.blobs,
        &mut block.pieces,
        &mut block.owner,
        &mut block.unmasked,
        &mut block.scan_item,
        &mut block.scan_near,
        &mut block.keys,
        &mut block.bins,
        &mut block.items,
        &mut block.look,
        &mut block.blob_records,
        &mut block.candidates,
        &mut block.report,
        &mut block.paint,
        &mut block.cell_depth,
        &mut block.planes,
    ];
    for address in addresses.into_iter().chain(&mut block.points) {
        *address += base;
    }
}

/// Enters the places of the detector's outputs for a camera.
pub(super) fn connect(block: &mut CameraBlock, networks: &Networks, camera: usize) {
    let Some((network, reading, [height, width])) = &networks.detector else { return };
    block.classes = reading.decoder.classes() as u32;
    (block.input_width, block.input_height) = (*width as u32, *height as u32);
    match reading.decoder {
        Decoder::Nanodet(heads) => {
            for (head, &(scores, boxes, columns)) in heads.heads.iter().enumerate() {
                block.scores[head] = network.output(camera, scores);
                block.boxes[head] = network.output(camera, boxes);
                block.head_cells[head] = network.outputs()[scores].1[1] as u32;
                block.head_columns[head] = columns as u32;
            }
        }
        Decoder::Table(table) => connect_table(block, &table, &**network, camera),
    }
}

/// The columns of a table, as addresses of their first numbers.
fn connect_table(block: &mut CameraBlock, table: &Table, network: &dyn DeviceNetwork, camera: usize) {
    let at =
        |column: Column| network.output(camera, column.output) + (column.start * size_of::<f32>()) as u64;
    block.head_cells[0] = table.rows as u32;
    block.sides = table.sides.map(at);
    block.side_step = table.sides[0].step as u32;
    let score = table.score_of(block.person_class as usize);
    (block.scores[0], block.score_step) = (at(score), score.step as u32);
    if let Some(objectness) = table.objectness {
        (block.scores[1], block.objectness_step) = (at(objectness), objectness.step as u32);
    }
    if let Some(label) = table.label {
        (block.scores[2], block.label_step) = (at(label), label.step as u32);
    }
    block.logits = table.logits.into();
    block.shares = table.shares.into();
    block.box_form = match table.form {
        BoxForm::CentreSize => 0,
        BoxForm::Corners => 1,
        BoxForm::Grid { first_stride, levels } => {
            (block.first_stride, block.levels) = (first_stride, levels);
            2
        }
    };
    if let Some(masks) = table.masks {
        block.boxes[1] = network.output(camera, masks.prototypes);
        (block.proto_width, block.proto_height) = (masks.width as u32, masks.height as u32);
        block.coefficients = at(masks.first);
        block.coefficient_step = masks.step as u32;
        block.mask_step = masks.first.step as u32;
    }
}
