// Package webhook contains the admission checks that CEL rules in the CRDs can't express:
// the immutability of templates, with an exception for Cluster API's dry runs; name
// patterns, which are Go templates; and expressions of host selectors, which are CEL. It
// also records who requests changes of hosts, which only admission knows, denies changes that
// their user lacks a verb for (package rights), and keeps Cluster API from replacing Machines where
// that is not allowed.
//
// But for missing verbs, webhooks never deny updates of objects that are being deleted: finalizers must be
// removable, and `clusterctl move` patches objects that it deletes.
package webhook
