from quant.methods.base import remark_lines


def test_a_line_for_each_layer_and_kind():
    remarks = {
        "model.layers.0.self_attn.q_proj.weight": "damping raised",
        "model.layers.0.mlp.experts.0.up_proj.weight": "damping raised",
        "model.layers.0.mlp.experts.1.up_proj.weight": "damping raised",
        "model.layers.0.self_attn.o_proj.weight": "something else",
        "model.layers.12.self_attn.q_proj.weight": "damping raised",
        "lm_head.weight": "damping raised",
    }
    assert remark_lines(remarks) == [
        "layer 0: damping raised for q_proj, up_proj",
        "layer 0: something else for o_proj",
        "layer 12: damping raised for q_proj",
        "lm_head.weight: damping raised",
    ]
    assert remark_lines({}) == []
