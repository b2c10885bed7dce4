"""libgantry.so through ctypes: just what the corpus runners need."""
import ctypes as C
import json
import os

import numpy as np

DTYPES = {"float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
          "float64": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}
NUMPY = {v: k for k, v in DTYPES.items() if k != "bfloat16"}
MAX_RANK = 16


class Buffer(C.Structure):
    _fields_ = [("handle", C.c_void_p), ("offset_bytes", C.c_size_t)]


class Tensor(C.Structure):
    _fields_ = [("struct_bytes", C.c_size_t), ("dtype", C.c_int), ("rank", C.c_uint32), ("dims", C.POINTER(C.c_int64)),
                ("strides", C.POINTER(C.c_int64)), ("domain", C.c_char_p), ("buffer", Buffer), ("size_bytes", C.c_size_t)]


class Error(C.Structure):
    _fields_ = [("struct_bytes", C.c_size_t), ("code", C.c_int), ("stage", C.c_int), ("provider", C.c_char * 64),
                ("node", C.c_char * 256), ("message", C.c_char * 2048)]


class ValueInfo(C.Structure):
    _fields_ = [("struct_bytes", C.c_size_t), ("name", C.c_char_p), ("kind", C.c_int), ("dtype", C.c_int), ("rank", C.c_int32),
                ("dims", C.POINTER(C.c_int64)), ("dim_names", C.POINTER(C.c_char_p)), ("has_default", C.c_int32)]


class GantryError(Exception):
    def __init__(self, lib, status, err, report=None):
        self.status, self.report = status, report
        self.stage = lib.gantry_stage_text(err.stage).decode()
        self.node = err.node.decode("utf-8", "replace")
        self.provider = err.provider.decode("utf-8", "replace")
        self.message = err.message.decode("utf-8", "replace")
        super().__init__(self.message)


def load(build):
    lib = C.CDLL(os.path.join(build, "libgantry.so"))
    for name in ("gantry_version", "gantry_stage_text", "gantry_status_text", "gantry_session_metadata"):
        getattr(lib, name).restype = C.c_char_p
    lib.gantry_runtime_allocation_count.restype = C.c_uint64
    lib.gantry_runtime_allocation_count.argtypes = [C.c_void_p]
    return lib


def dense(array):
    """C order, 0-d arrays kept 0-d."""
    return np.array(array, order="C", copy=True)


class Runtime:
    def __init__(self, lib):
        self.lib, self.handle = lib, C.c_void_p()
        self.check(lib.gantry_runtime_create(None, C.byref(self.handle), self.error()))

    def error(self):
        self.err = Error(struct_bytes=C.sizeof(Error))
        return C.byref(self.err)

    def check(self, status, report=None):
        if status:
            raise GantryError(self.lib, status, self.err, report)

    def load_provider(self, path, config=""):
        self.check(self.lib.gantry_runtime_load_provider(self.handle, path.encode(), config.encode(), self.error()))

    def unavailable(self, name):
        """Why the provider of that name can't be used; None when it can."""
        for k in range(self.lib.gantry_runtime_provider_count(self.handle)):
            row, available, detail = C.c_char_p(), C.c_int(), C.c_char_p()
            self.check(self.lib.gantry_runtime_provider(self.handle, C.c_uint32(k), C.byref(row), C.byref(available), C.byref(detail)))
            if row.value.decode() == name and available.value:
                return None
            if row.value.decode() == name:
                return detail.value.decode()
        return "not loaded"

    def device_buffer(self, domain, array):
        """Memory of a domain with the bytes of an array."""
        buffer = Buffer()
        self.check(self.lib.gantry_memory_alloc(self.handle, domain.encode(), C.c_size_t(array.nbytes), C.byref(buffer), self.error()))
        a = dense(array)
        self.check(self.lib.gantry_memory_copy(self.handle, domain.encode(), buffer, b"host", Buffer(a.ctypes.data, 0),
                                               C.c_size_t(a.nbytes), self.error()))
        return buffer

    def read_buffer(self, domain, buffer, like):
        out = np.empty_like(like)
        self.check(self.lib.gantry_memory_copy(self.handle, b"host", Buffer(out.ctypes.data, 0), domain.encode(), buffer,
                                               C.c_size_t(out.nbytes), self.error()))
        return out

    def free_buffer(self, domain, buffer):
        self.lib.gantry_memory_free(self.handle, domain.encode(), C.byref(buffer))

    def close(self):
        self.check(self.lib.gantry_runtime_destroy(C.byref(self.handle), self.error()))


class Session:
    """A session with one run."""

    def __init__(self, runtime, source, options):
        self.runtime, self.lib = runtime, runtime.lib
        self.handle, self.run, report = C.c_void_p(), C.c_void_p(), C.c_void_p()
        opts = C.c_void_p()
        runtime.check(self.lib.gantry_options_create(C.byref(opts), runtime.error()))
        try:
            for k, v in options.items():
                runtime.check(self.lib.gantry_options_set(opts, k.encode(), str(v).encode(), runtime.error()))
            if isinstance(source, bytes):
                status = self.lib.gantry_session_create_from_memory(runtime.handle, source, C.c_size_t(len(source)), opts,
                                                                    C.byref(self.handle), C.byref(report), runtime.error())
            else:
                status = self.lib.gantry_session_create_from_file(runtime.handle, os.fsencode(source), opts, C.byref(self.handle),
                                                                  C.byref(report), runtime.error())
            err = runtime.err
            self.created = self.render(report) if report else None
            if status:
                raise GantryError(self.lib, status, err, self.created)
        finally:
            self.lib.gantry_options_destroy(C.byref(opts))
        runtime.check(self.lib.gantry_run_create(self.handle, C.byref(self.run), runtime.error()))
        self.inputs = self.values(self.lib.gantry_session_input, self.lib.gantry_session_input_count(self.handle))
        self.outputs = self.values(self.lib.gantry_session_output, self.lib.gantry_session_output_count(self.handle))
        self.bound = {}

    def values(self, call, count):
        rows = []
        for k in range(count):
            info = ValueInfo(struct_bytes=C.sizeof(ValueInfo))
            self.runtime.check(call(self.handle, k, C.byref(info), self.runtime.error()))
            rows.append({"name": info.name.decode("utf-8", "surrogateescape"), "dtype": info.dtype, "rank": info.rank,
                         "has_default": bool(info.has_default)})
        return rows

    def bind(self, name, array):
        k = next((i for i, v in enumerate(self.inputs) if v["name"] == name), None)
        if k is None:
            raise KeyError("the model has no input " + name)
        a = dense(array)
        dims = (C.c_int64 * max(1, a.ndim))(*a.shape)
        t = Tensor(C.sizeof(Tensor), DTYPES[str(a.dtype)], a.ndim, dims, None, None, Buffer(a.ctypes.data, 0), a.nbytes)
        self.bound[name] = (a, dims)
        self.runtime.check(self.lib.gantry_run_bind_input(self.run, k, C.byref(t), self.runtime.error()))

    def bind_device(self, name, domain, buffer, like, output=False):
        """Memory of a device for an input or output, in the shape and type of `like`."""
        rows = self.outputs if output else self.inputs
        k = next(i for i, v in enumerate(rows) if v["name"] == name)
        dims = (C.c_int64 * max(1, like.ndim))(*like.shape)
        t = Tensor(C.sizeof(Tensor), DTYPES[str(like.dtype)], like.ndim, dims, None, domain.encode(), buffer, like.nbytes)
        call = self.lib.gantry_run_bind_output if output else self.lib.gantry_run_bind_input
        self.runtime.check(call(self.run, k, C.byref(t), self.runtime.error()))

    def execute(self, feeds):
        for name, array in feeds.items():
            self.bind(name, array)
        self.runtime.check(self.lib.gantry_run_execute(self.run, self.runtime.error()))
        return {v["name"]: self.output(k) for k, v in enumerate(self.outputs)}

    def output(self, k):
        t = Tensor(struct_bytes=C.sizeof(Tensor))
        self.runtime.check(self.lib.gantry_run_output(self.run, k, C.byref(t), self.runtime.error()))
        shape = [t.dims[i] for i in range(t.rank)]
        data = C.string_at(t.buffer.handle + t.buffer.offset_bytes, t.size_bytes) if t.size_bytes else b""
        return np.frombuffer(data, dtype=NUMPY[t.dtype]).reshape(shape).copy()

    def render(self, report, text=False):
        out, size = C.c_char_p(), C.c_size_t()
        status = self.lib.gantry_report_render(report, 2 if text else 1, C.byref(out), C.byref(size), self.runtime.error())
        data = out.value
        self.lib.gantry_report_destroy(C.byref(report))
        self.runtime.check(status)
        return data.decode() if text else json.loads(data)

    def report(self, text=False):
        report = C.c_void_p()
        self.runtime.check(self.lib.gantry_session_report(self.handle, self.run, C.byref(report), self.runtime.error()))
        return self.render(report, text)

    def close(self):
        self.lib.gantry_run_destroy(C.byref(self.run))
        if self.handle:
            self.runtime.check(self.lib.gantry_session_destroy(C.byref(self.handle), self.runtime.error()))
