// Package publish writes the current endpoint into the objects of a kubeadm
// cluster that name a former one: kube-public/cluster-info, where joining nodes
// find the API server; kube-system/kubeadm-config, which kubeadm reads when nodes
// join or are upgraded; kube-system/kube-proxy, whose Pods it replaces once.
// Missing objects are skipped, and so are objects that name neither the current
// endpoint nor a former one, because a user chose their value.
//
// Package endpoint calls it on the host whose API server is the endpoint. It
// uses the API server of this host, with the administrator's credentials of
// kubeadm: the endpoint that those credentials name may be unavailable.
package publish
