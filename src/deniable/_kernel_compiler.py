"""A Numba compiler pipeline that compiles a kernel and its callees in less than half the usual time.

- By default, Numba optimizes a function and generates machine code for it, links it into its caller,
  optimizes both, and so on up to the function that Python calls. In a deep tree of calls most of this is
  for code that is never run. Here, a kernel's callees are only lowered (`PartCompiler`), and the whole
  tree is optimized once, when all of it is known (`WholeCompiler`).
- What an operator returns for which types is looked up once, not at every place where it stands.
- A kernel is not compiled a second time for a number that is known while it is compiled.
- Passes for what kernels do not have (closures, `with`, loops over mixed tuples) are left out, and
  liveness is not computed again after passes that leave the code as it is.
- Processes that need the same kernel at the same time wait until one of them has compiled it.

The machine code gives bit-identical results to Numba's own compiler: no option that changes
arithmetic is modified.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from llvmlite.binding import Linkage
from numba import _dynfunc, types  # type: ignore[attr-defined]
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    _CacheLocator,
    _SourceFileBackedLocatorMixin,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import PassManager, register_pass

NOT_NEEDED = frozenset(
    {
        untyped.WithLifting,
        untyped.InlineClosureLikes,
        untyped.MakeFunctionToJitFunction,
        untyped.InlineInlinables,
        untyped.FindLiterallyCalls,
        untyped.LiteralUnroll,
        untyped.LiteralPropagationSubPipelinePass,
        typed.InlineOverloads,
    }
)
"""Numba's passes that have no effect on kernels. The tests compare with Numba's own compiler."""

_PATIENCE = 60
"""Seconds to wait for another process; the largest kernel takes ten."""

_functions: Any = types.Function
_kernels: Any = types.Dispatcher
_usual_look_up = _functions.get_call_type
_usual_kernel_look_up = _kernels.get_call_type
_signatures: dict[str, dict[Any, Any]] = {}
"""Cached by compilation options, then by function and argument types."""


class _Part(JITCodeLibrary):
    """Code to be linked into a caller: neither optimized nor turned into machine code."""

    def _optimize_functions(self, ll_module: Any) -> None:
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self) -> None:
        """Left without what it calls: whoever is compiled as a whole links every part once."""
        self._raise_if_finalized()
        self._finalize_dynamic_globals()
        # A function can reach a caller by several paths; all copies are identical.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = "linkonce_odr"
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        linked = self._final_module.clone()
        for library in _called_by(self):
            is_part = isinstance(library, _Part)
            called = library._final_module if is_part else library._get_module_for_linking()
            linked.link_in(called, preserve=True)
        return linked


def _called_by(part: _Part) -> list[Any]:
    """The libraries of all that a part calls, at any depth, each once."""
    found: dict[int, Any] = {}
    open_ends: list[Any] = [part]
    while open_ends:
        for library in open_ends.pop()._linking_libraries:
            if id(library) not in found and library is not part:
                found[id(library)] = library
                # Numba's own libraries have linked what they call.
                if isinstance(library, _Part):
                    open_ends.append(library)
    return list(found.values())


class _Whole(JITCodeLibrary):
    """A kernel with all its callees, without reference counts, optimized once."""

    def _optimize_final_module(self) -> None:
        # Numba does this twice, to remove reference counts in between.
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)


@register_pass(mutates_CFG=False, analysis_only=False)
class _Infer(typed.NopythonTypeInference):
    _name = "kernel_type_inference"

    def run_pass(self, state: Any) -> bool:
        with _remembering(state.flags):
            return bool(super().run_pass(state))


@register_pass(mutates_CFG=False, analysis_only=False)
class _LowerWhole(typed.NativeLowering):
    _name = "kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        if not state.flags.nrt and state.library is None:
            state.library = _Whole(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        with _remembering(state.flags):
            return bool(super().run_pass(state))


@register_pass(mutates_CFG=False, analysis_only=False)
class _LowerPart(_LowerWhole):
    _name = "kernel_part_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True
        super().run_pass(state)
        lowered = state["cr"]
        described = lowered.fndesc
        # This function is never called: Numba uses it to find the part's code.
        key = _dynfunc.make_function(
            described.lookup_module(), described.qualname, "", 0, lowered.env, (state.library,)
        )
        state.targetctx.insert_user_function(key, described, [state.library])
        state["cr"] = lowered._replace(cfunc=key)
        return True


class WholeCompiler(CompilerBase):
    """Compiles a kernel that is called from Python."""

    replaced: ClassVar[dict[Any, Any]] = {
        typed.NopythonTypeInference: _Infer,
        typed.NativeLowering: _LowerWhole,
    }

    def define_pipelines(self) -> list[PassManager]:
        """Return Numba's passes, with some replaced and some omitted."""
        usual = [
            *DefaultPassBuilder.define_untyped_pipeline(self.state).passes,
            *DefaultPassBuilder.define_typed_pipeline(self.state).passes,
            *DefaultPassBuilder.define_nopython_lowering_pipeline(self.state).passes,
        ]
        # Rewrites fuse operations on whole arrays; kernels that never allocate have none.
        left_out = NOT_NEEDED if self.state.flags.nrt else {*NOT_NEEDED, typed.NopythonRewrites}
        manager = PassManager("kernel")
        for step, description in usual:
            if step not in left_out:
                manager.add_pass(self.replaced.get(step, step), description)
        manager.finalize()
        return [manager]

    def compile_extra(self, function: Any) -> Any:
        """Compile without the garbage collector, because nearly all objects live until the end."""
        enabled = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(function)
        finally:
            if enabled:
                gc.enable()


class PartCompiler(WholeCompiler):
    """Compiles a kernel that is called by another one."""

    replaced: ClassVar[dict[Any, Any]] = WholeCompiler.replaced | {typed.NativeLowering: _LowerPart}


def keep_in(folder: Path, kernel: Any) -> None:
    """Cache a kernel's machine code in this folder, and let one process at a time compile it."""

    class Here(_SourceFileBackedLocatorMixin, _CacheLocator):
        """Numba's own locators name the folder after the path of the source."""

        def __init__(self, function: Any, file: str) -> None:
            self._py_file, self._lineno = file, function.__code__.co_firstlineno

        def get_cache_path(self) -> str:
            return str(folder)

    usual: Any = CompileResultCacheImpl._locator_classes  # where this folder cannot be written
    kept = type("Kept", (CompileResultCacheImpl,), {"_locator_classes": [Here, *usual]})
    made: Any = type("KernelCache", (FunctionCache,), {"_impl_class": kept})
    kernel._cache = made(kernel.py_func)
    compile_or_load = kernel.compile

    def one_at_a_time(signature: Any) -> Any:
        with _alone(folder / f"{kernel.py_func.__name__}.lock"):
            return compile_or_load(signature)

    kernel.compile = one_at_a_time


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock among processes, where there are such locks and the folder can be written.

    Whoever has waited for a minute goes on without it, because its holder may never end.
    """
    with ExitStack() as held:
        with suppress(ImportError, OSError):
            import fcntl

            file = held.enter_context(path.open("ab"))
            end = time.monotonic() + _PATIENCE
            while time.monotonic() < end:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.05)
        yield


@contextmanager
def _remembering(options: Any) -> Iterator[None]:
    """Cache the return types of builtin functions; Numba's compiler lock excludes other threads."""
    known = _signatures.setdefault(options.summary(), {})

    def look_up(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        key = function, tuple(arguments), tuple(named.items())
        if key not in known:
            found = _usual_look_up(function, context, arguments, named)
            known[key] = found, function._impl_keys[found.args]
        signature, function._impl_keys[signature.args] = known[key]
        return signature

    def look_up_kernel(function: Any, context: Any, arguments: Any, named: Any) -> Any:
        general = tuple(types.unliteral(argument) for argument in arguments)
        return _usual_kernel_look_up(function, context, general, named)

    before = _functions.get_call_type, _kernels.get_call_type
    _functions.get_call_type, _kernels.get_call_type = look_up, look_up_kernel
    try:
        yield
    finally:
        _functions.get_call_type, _kernels.get_call_type = before
