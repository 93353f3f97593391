// Package cluster reconciles ElementalClusters: it fills a control plane
// endpoint whose host was left blank, and moves it when it has to.
//
// Control-plane providers such as KubeadmControlPlane create no Machine before
// the endpoint is known, so waiting for a bootstrapped host would wait for
// ever. A host is reserved instead, by the control plane's machine template, and
// its address published; the first control-plane Machine takes that host.
//
// The choice is written to the ElementalCluster before the host is reserved, so
// that a crash between the two is mended by the next reconcile. An endpoint that
// the user gave, here or on the Cluster, is never touched.
//
// Once a control-plane machine has the host, package failover decides where the
// endpoint belongs. A move is one compare-and-swap on the ElementalCluster; what
// follows it is derived from spec, and done again until it is found done.
package cluster
