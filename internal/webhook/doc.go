// Package webhook holds the admission checks that CEL rules in the CRDs can't
// express: the immutability of templates, which has to make an exception for
// Cluster API's dry runs, name patterns, which are Go templates, and expressions
// over hosts, which are CEL themselves.
//
// Objects that are being deleted are never refused: finalizers have to go, and
// `clusterctl move` patches what it deletes.
package webhook
