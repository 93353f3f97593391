// Package proxy gives users of the management cluster access to workload clusters at
// /clusters/NAMESPACE/CLUSTER/…, with their own credentials.
//
// A request is authenticated and authorized as the management API server does it: the user
// needs the verb create on clusters/proxy of the group cluster.x-k8s.io. It is then sent to
// the workload cluster's API server with the proxy's own credential, which impersonates the
// user and nobody else, so that the bindings of the workload cluster decide. Nothing that
// the caller sent can change whom the proxy impersonates: the header of the request is
// built anew.
package proxy
