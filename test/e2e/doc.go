// Package e2e tests the product on real hosts: the lab's management cluster and
// hosts (test/lab), real Cluster API controllers, real kubeadm clusters. It is
// built with the tag e2e and run by `make test-e2e`; the variable E2E_LABELS
// filters specs by label (Ginkgo's label-filter syntax).
//
// The lab's own variables apply (test/lab/README.md), but there are seven hosts
// where LAB_HOSTS is not given: the label endpoint needs as many. Besides:
//
//	E2E_ARTIFACTS  folder that gets all logs when a spec fails (default out/e2e)
//	E2E_KEEP=true  leave the lab running at the end
package e2e
