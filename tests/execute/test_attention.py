import pytest
import torch

from potluck.execute.attention import pin_attention


def enabled():
    kinds = torch.backends.cuda
    return [getattr(kinds, f"{kind}_sdp_enabled")() for kind in ("flash", "cudnn", "mem_efficient", "math")]


def test_on_a_gpu_two_kinds_of_kernels_are_left_while_something_trains():
    before = enabled()
    assert all(before)
    with pin_attention(torch.device("cuda:0")):
        assert enabled() == [False, False, True, True]
        with pin_attention(torch.device("cuda")):
            assert enabled() == [False, False, True, True]
        assert enabled() == [False, False, True, True]
    assert enabled() == before
    with pytest.raises(ZeroDivisionError), pin_attention(torch.device("cuda")):
        raise ZeroDivisionError
    assert enabled() == before


def test_on_a_cpu_torch_goes_on_as_it_is():
    before = enabled()
    with pin_attention(torch.device("cpu")):
        assert enabled() == before
