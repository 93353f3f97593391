// Package publish has the objects of a kubeadm cluster that name its endpoint
// name the one that is: kube-public/cluster-info, from which nodes learn where to
// join; kube-system/kubeadm-config, which kubeadm reads when nodes join or are
// upgraded; kube-system/kube-proxy, whose Pods are replaced once. An object that
// names neither the endpoint nor a former one is somebody's own and is left
// alone, and one that is missing is not needed.
//
// It talks to the API server of its own host, with the administrator's
// credentials that kubeadm left there: the endpoint that they name may be dead.
package publish
