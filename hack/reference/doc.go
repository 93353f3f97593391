// Command reference writes the generated tables of docs/reference.md: the fields
// of each kind, from the CRDs, and the manager's metrics, from the Go sources.
// `make generate` runs it after the CRDs are written, in the root of the
// repository. A table stands between two comments that name it:
//
//	<!-- begin fields ElementalHost -->
//	<!-- end fields ElementalHost -->
//
// It changes nothing outside of these comments.
package main
