// Package envtest runs a real kube-apiserver and etcd for tests, with the
// CustomResourceDefinitions of this provider and of Cluster API (core, kubeadm
// bootstrap, kubeadm control plane) installed. It needs no root.
//
// One control plane for a whole package of tests, which is what most want as a
// start takes some seconds:
//
//	var env *envtest.Environment
//
//	func TestMain(m *testing.M) {
//		os.Exit(envtest.Main(m, func(e *envtest.Environment) { env = e }))
//	}
//
// One for a single test, stopped at its end:
//
//	env := envtest.Start(t)
//
// Environment.Config is an administrator's client configuration without rate limit.
// Environment.Client and Environment.Namespace are shortcuts, and AddUser returns a
// configuration of a user with fewer rights.
// WithWebhooks registers the webhook configurations of config/webhook; serve
// them on a manager that has Environment.WebhookServer.
//
// WithAuthority makes the API server one of a workload cluster: its authority is known.
//
// Tests share the API server, so give each test a namespace of its own. Only
// the API server runs: nothing collects garbage, empties namespaces or makes
// Pods, and objects of Cluster API are neither reconciled nor defaulted nor
// checked by its webhooks.
//
// The programs come from test/tools. `make test` sets KUBEBUILDER_ASSETS to their folder;
// without that variable this package builds those that are not in the cache.
package envtest
