"""Models of a training service: named apart from local ones, known by the service's name."""

from specs.tinker import TinkerModel


def test_a_model_is_known_by_the_services_name_and_called_by_ours() -> None:
    ours = TinkerModel(name="qwen", model="Qwen/Qwen3-8B", context_tokens=4096)
    renamed = ours.model_copy(update={"name": "other", "context_tokens": 8192})
    larger = ours.model_copy(update={"model": "Qwen/Qwen3-32B"})
    assert (ours.full_name, renamed.full_name) == ("tinker/qwen", "tinker/other")
    assert ours.digest == renamed.digest != larger.digest
