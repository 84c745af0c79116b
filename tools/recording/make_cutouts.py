#!/usr/bin/env python3
"""Makes the people of the synthetic scene: cut-outs of real pedestrians with alpha, from the same video.

    python3 tools/recording/make_cutouts.py --list sheet.png          # candidates, numbered, to look at
    python3 tools/recording/make_cutouts.py --pick 620:0 ...          # FRAME:BOX of the list
"""

import argparse
import pathlib

import cv2
import numpy as np

import make_pedestrians
import people


def cutout(frame, background, box, segmenter):
    """BGRA image of one person, tight around the silhouette; colour bleeds outward so that edges stay clean."""
    person, _ = make_pedestrians.silhouette(frame, background, box, segmenter)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(person.astype(np.uint8))
    if count < 2:
        return None
    person = labels == 1 + np.argmax(stats[1:, cv2.CC_STAT_AREA])
    rows, columns = np.nonzero(person.any(1))[0], np.nonzero(person.any(0))[0]
    cut = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    colour = cv2.inpaint(frame[cut], (~person[cut]).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    return np.dstack([colour, np.where(person[cut], 255, 0).astype(np.uint8)])


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--video", default="/usr/share/doc/opencv-doc/examples/data/vtest.avi")
    parser.add_argument("--models", type=pathlib.Path, default=root / "models")
    parser.add_argument("--out", type=pathlib.Path, default=root / "crates/takt-link-camera/src/synthetic/people")
    parser.add_argument("--list", type=pathlib.Path)
    parser.add_argument("--pick", nargs="*", default=[])
    args = parser.parse_args()
    frames = make_pedestrians.read_video(args.video)
    background = np.median(frames[::6], axis=0).astype(np.int16)
    detector = people.Detector(args.models / "nanodet_g_416.onnx", threshold=0.5)
    segmenter = people.Segmenter(args.models / "selfie_square_256.onnx")
    if args.list:
        tiles = []
        for f in range(0, len(frames), 15):
            for i, box in enumerate(detector(frames[f])):
                if box[3] - box[1] < 95 or box[3] > 570:
                    continue
                image = cutout(frames[f], background, box, segmenter)
                if image is None:
                    continue
                tile = np.full((190, 110, 3), 200, np.uint8)
                h, w = min(image.shape[0], 165), min(image.shape[1], 110)
                alpha = image[:h, :w, 3:] / 255
                tile[:h, :w] = image[:h, :w, :3] * alpha + tile[:h, :w] * (1 - alpha)
                cv2.putText(tile, f"{f}:{i}", (2, 185), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 0))
                tiles.append(tile)
        tiles += [np.zeros_like(tiles[0])] * (-len(tiles) % 12)
        cv2.imwrite(str(args.list), np.vstack([np.hstack(tiles[i : i + 12]) for i in range(0, len(tiles), 12)]))
    args.out.mkdir(parents=True, exist_ok=True)
    for n, pick in enumerate(args.pick):
        f, i = map(int, pick.split(":"))
        image = cutout(frames[f], background, detector(frames[f])[i], segmenter)
        cv2.imwrite(str(args.out / f"person{n}.png"), image, [cv2.IMWRITE_PNG_COMPRESSION, 9])
        print(f"person{n}.png: frame {f}, {image.shape[1]}x{image.shape[0]}")


if __name__ == "__main__":
    main()
