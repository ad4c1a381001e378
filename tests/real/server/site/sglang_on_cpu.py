# Copyright: the blackwell.sglang authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Let SGLang's own code be imported where there is no GPU. Loaded at every start of the server's interpreter.

torchvision: its wheel is a CUDA build whose compiled part does not load beside a CPU torch. The two operators that
its Python part speaks of are declared, which is enough to import it.
triton: kernels are defined, none is launched, so names are enough; they stand in unless a real one is installed.
"""

import importlib.machinery
import sys
import types


class _Anything:
    """Base of every class that is asked of the stand-in."""

    def __init_subclass__(cls, **options):
        super().__init_subclass__()

    def __init__(self, *words, **options):
        pass


class _StandIn(types.ModuleType):
    """A module with every name: classes where capitalised, else modules, which also serve as decorators."""

    def __init__(self, name):
        super().__init__(name)
        self.__path__ = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, _Loader, is_package=True)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"
        if name[:1].isupper():
            found = type(name, (_Anything,), {"__module__": self.__name__})
        else:
            found = sys.modules.setdefault(full, _StandIn(full))
        setattr(self, name, found)
        return found

    def __call__(self, *words, **options):
        if len(words) == 1 and callable(words[0]) and not options:
            return words[0]
        return lambda function: function


class _Constexpr:
    def __init__(self, value=None):
        self.value = value


class _Loader:
    @staticmethod
    def create_module(spec):
        module = sys.modules.get(spec.name) or _StandIn(spec.name)
        if spec.name == "triton":
            module.__version__ = "3.0.0"
            module.cdiv = lambda left, right: -(left // -right)
            module.next_power_of_2 = lambda number: 1 << max(number - 1, 0).bit_length()
        elif spec.name == "triton.language":
            module.constexpr = _Constexpr
        return module

    @staticmethod
    def exec_module(module):
        pass


class _Triton:
    """Last in line, so that a real one is found first."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "triton" or name.startswith("triton."):
            return importlib.machinery.ModuleSpec(name, _Loader, is_package=True)
        return None


class _TorchVision:
    """First in line: declares the operators, then lets the real package be found."""

    library = None

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "torchvision" and cls.library is None:
            import torch

            cls.library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                cls.library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return


sys.meta_path.insert(0, _TorchVision)
sys.meta_path.append(_Triton)
