package certs

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is what kubeadm calls every cluster in the kubeconfigs that it writes.
const clusterName = "kubernetes"

// Kubeconfig is that of a user of a cluster, all inline.
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

// Info is the kubeconfig in ConfigMap kube-public/cluster-info: a cluster without a name, nobody's.
func Info(server string, authority []byte) ([]byte, error) {
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{"": {Server: server, CertificateAuthorityData: authority}},
	})
	if err != nil {
		return nil, fmt.Errorf("writing cluster-info: %w", err)
	}
	return text, nil
}

// ReadInfo reads what Info has written, and whatever kubeadm writes there.
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

// Server is where a kubeconfig's user finds the API server.
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
