package certs

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is the cluster's name in all kubeconfigs of kubeadm.
const clusterName = "kubernetes"

// Kubeconfig returns the kubeconfig of a user, with all certificates inline.
func Kubeconfig(server string, authority []byte, user string, pair Pair) ([]byte, error) {
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{clusterName: {Server: server, CertificateAuthorityData: authority}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}},
		Contexts: map[string]*clientcmdapi.Context{
			user + "@" + clusterName: {Cluster: clusterName, AuthInfo: user},
		},
		CurrentContext: user + "@" + clusterName,
	})
	if err != nil {
		return nil, fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return text, nil
}

// Info returns the kubeconfig for the ConfigMap kube-public/cluster-info. Its cluster has no name
// and no user.
func Info(server string, authority []byte) ([]byte, error) {
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"": {Server: server, CertificateAuthorityData: authority}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing cluster-info: %w", err)
	}
	return text, nil
}

// ReadInfo reads the kubeconfig of cluster-info, written by Info or by kubeadm.
func ReadInfo(text []byte) (server string, authority []byte, err error) {
	config, err := clientcmd.Load(text)
	if err != nil {
		return "", nil, fmt.Errorf("reading cluster-info: %w", err)
	}
	cluster := config.Clusters[""]
	if cluster == nil {
		return "", nil, fmt.Errorf("reading cluster-info: it names no cluster")
	}
	return cluster.Server, cluster.CertificateAuthorityData, nil
}

// Server returns the URL of the API server in a kubeconfig.
func Server(text []byte) (string, error) {
	config, err := clientcmd.Load(text)
	if err != nil {
		return "", fmt.Errorf("reading a kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return "", fmt.Errorf("reading a kubeconfig: it names no cluster")
	}
	return config.Clusters[current.Cluster].Server, nil
}
