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
// Environment.Config is a client configuration of an administrator without a
// rate limit; Environment.Client and Environment.Namespace spare the usual
// lines, and AddUser returns a configuration for somebody with fewer rights.
// WithWebhooks registers the webhook configurations of config/webhook; serve
// them on a manager that has Environment.WebhookServer.
//
// Tests share the API server, so give each test a namespace of its own. Only
// the API server runs: nothing collects garbage, empties namespaces or makes
// Pods, and objects of Cluster API are neither reconciled nor defaulted nor
// checked by its webhooks.
//
// The programs are those of test/tools. `make test` puts their folder into
// KUBEBUILDER_ASSETS; without that variable they are taken from the cache of
// test/tools, and built if they aren't there.
package envtest
