"""The operations over the Model Context Protocol: the registry of `tools`, rendered as tools.

Every operation that an agent may use is the tool `noun_verb`. Its result is structured content
of the declared schema and a short text; a failure is a result with `isError` whose structured
content is the problem document, with the next call to make. Nothing is defined here that the
command line does not have.
"""
