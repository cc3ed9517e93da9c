"""The Open Inference Protocol, version 2: tensors in, tensors out, as KServe and Triton speak it.

A tensor's data is in the JSON text, or follows it as bytes (Triton's binary extension): the header
`Inference-Header-Content-Length` says where the text ends, `binary_data_size` how many bytes each
tensor takes. Text is BYTES: each preceded by its length in four bytes.

    inputs     one tensor of the rows, or one for each of the model's inputs
    outputs    belief, assertion, reason, level, and scores if they are asked for
"""
