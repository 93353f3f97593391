// Package e2e tests the product on real hosts: the lab's management cluster and
// hosts (test/harness/lab), Cluster API's controllers and kubeadm clusters.
//
// `make test-e2e` builds it with the tag e2e and runs it. E2E_LABELS selects
// scenarios by label (Ginkgo's label-filter syntax), E2E_FOCUS by a regular
// expression for the name; `make test-e2e-labels` lists both.
//
// The variables of the lab apply (test/harness/lab/README.md); LAB_HOSTS is seven by
// default, because the scenarios with the label endpoint need seven hosts. This
// package adds:
//
//	E2E_ARTIFACTS  folder for all logs of a failed scenario (default out/e2e)
//	E2E_KEEP=true  uses a lab that runs already, and leaves it running at the end
package e2e
