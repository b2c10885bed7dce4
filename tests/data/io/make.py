#!/usr/bin/env python3
"""Makes the files of this folder, which tests/unit/test_io.c reads: numpy, onnx and Pillow are the judges of our formats.

    python3 make.py        needs numpy, onnx, Pillow; the files are kept in the repository
"""
import os
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
at = lambda name: os.path.join(HERE, name)

# Element k of each array is 3 k - 4 (unsigned: 3 k; bool: k is odd), so that the test needs no list of numbers.
DTYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16", "b1"]


def numbers(code, shape):
    k = np.arange(int(np.prod(shape)))
    values = k % 2 == 1 if code == "b1" else 3 * k if code[0] == "u" else 3 * k - 4
    return values.astype(code).reshape(shape)


def numpy_files():
    arrays = {"all/" + c: numbers(c, (2, 3)) for c in DTYPES}
    arrays["fortran:0"] = np.asfortranarray(numbers("f4", (2, 3, 4)))
    arrays["scalar"] = np.array(-4, "i8")
    arrays["empty"] = np.zeros((0, 3), "f4")
    np.savez(at("stored.npz"), **arrays)
    np.savez_compressed(at("deflated.npz"), **arrays)
    np.save(at("v1.npy"), numbers("f4", (2, 3)))
    for version in (2, 3):
        with open(at("v%d.npy" % version), "wb") as f:
            np.lib.format.write_array(f, numbers("f4", (2, 3)), version=(version, 0))
    np.save(at("big_endian.npy"), numbers("f4", (2, 3)).astype(">f4"))
    np.save(at("record.npy"), np.zeros(2, [("a", "f4"), ("b", "i4")]))
    np.save(at("rank17.npy"), np.zeros((1,) * 17, "f4"))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296), }\n"
    with open(at("overflow.npy"), "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)


TYPED = ["FLOAT", "DOUBLE", "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "BOOL", "FLOAT16",
         "BFLOAT16", "FLOAT8E4M3FN", "FLOAT8E5M2", "INT4", "UINT4", "COMPLEX64", "COMPLEX128"]


def tensor_protos():
    """Each type twice, by the typed field and by raw_data: the same tensor."""
    for name in TYPED:
        kind = getattr(TensorProto, name)
        code = {"BOOL": "b1"}.get(name, "u1" if name.startswith("U") else "i1")
        values = numbers(code, (5,)) if name not in ("UINT4", "INT4") else np.array([1, -2, 3, -4, 5]) % (16 if name == "UINT4" else 99)
        if name.startswith("COMPLEX"):
            values = values + 1j * values
        for raw in (False, True):
            dtype = helper.tensor_dtype_to_np_dtype(kind)
            if raw:
                proto = numpy_helper.from_array(values.astype(dtype), name.lower())
            else:
                proto = helper.make_tensor(name.lower(), kind, [5], values.tolist())
            assert proto.HasField("raw_data") == raw and proto.data_type == kind, name
            with open(at("%s_%s.pb" % (name.lower(), "raw" if raw else "typed")), "wb") as f:
                f.write(proto.SerializeToString())
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"hello"])
    outside = TensorProto(dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="w.bin")
    both = TensorProto(dims=[1], data_type=TensorProto.FLOAT, raw_data=b"\0\0\0\0", float_data=[1])
    for name, proto in {"text": text, "outside": outside, "both": both}.items():
        with open(at(name + ".pb"), "wb") as f:
            f.write(proto.SerializeToString())


def resized(rgb, width, height):
    """Bilinear, half-pixel centres, edges repeated: the definition, one output pixel at a time."""
    source = rgb.astype(np.float64)
    out = np.zeros((height, width, 3))
    clamp = lambda v, n: (max(min(int(np.floor(v)), n - 1), 0), max(min(int(np.floor(v)) + 1, n - 1), 0), v - np.floor(v))
    for y in range(height):
        y0, y1, wy = clamp((y + 0.5) * source.shape[0] / height - 0.5, source.shape[0])
        for x in range(width):
            x0, x1, wx = clamp((x + 0.5) * source.shape[1] / width - 0.5, source.shape[1])
            out[y, x] = ((source[y0, x0] * (1 - wx) + source[y0, x1] * wx) * (1 - wy) +
                         (source[y1, x0] * (1 - wx) + source[y1, x1] * wx) * wy)
    return out


def pictures():
    y, x = np.mgrid[0:7, 0:10]
    rgb = np.stack([x * 25, y * 36, (x * y * 4) % 256], -1).astype(np.uint8)
    alpha = np.where(x < 5, 255, 0).astype(np.uint8)
    Image.fromarray(rgb).save(at("rgb.png"))
    Image.fromarray(np.dstack([rgb, alpha])).save(at("rgba.png"))
    Image.fromarray(rgb[..., 0]).save(at("gray.png"))
    Image.fromarray(rgb).save(at("rgb.jpg"), quality=98, subsampling=0)
    Image.fromarray(rgb).convert("CMYK").save(at("cmyk.jpg"))
    white = np.where(x[..., None] < 5, rgb, 255)
    mean, std = np.array([0.5, 0.25, 0.125]), np.array([0.5, 2, 0.25])
    channels_first = lambda a: a.transpose(2, 0, 1)[None]
    normal = lambda a: ((a / 255 - mean) / std).astype("f4")
    luma = rgb.astype(np.float64) @ np.array([0.299, 0.587, 0.114])
    np.savez(at("pictures.npz"),
             native=channels_first(rgb / 255.0).astype("f4"), white=channels_first(white / 255.0).astype("f4"),
             larger=channels_first(normal(resized(rgb, 23, 9))), smaller=normal(resized(rgb, 4, 3))[None],
             bgr=channels_first(normal(rgb[..., ::-1])), luma=(luma / 255)[None, None].astype("f4"),
             gray=channels_first(np.repeat(rgb[..., :1], 3, -1) / 255.0).astype("f4"),
             jpeg=channels_first(np.asarray(Image.open(at("rgb.jpg"))) / 255.0).astype("f4"))


if __name__ == "__main__":
    numpy_files()
    tensor_protos()
    pictures()
