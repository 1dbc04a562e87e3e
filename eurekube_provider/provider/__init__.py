"""The native Pulumi provider: a gRPC server around ``registrations``, for programs in every language."""
