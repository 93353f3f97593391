package direct

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serverName is in the serving certificate of every API server, by whatever it was set up.
const serverName = "kubernetes.default.svc"

// contents are what a kubeconfig is made of.
type contents struct {
	// url and ca are the gateway's.
	url     string
	ca      []byte
	cluster types.NamespacedName
	// entry is the caller's own user in kubeconfigs.
	entry            string
	to               Cluster
	certificate, key []byte
}

// kubeconfig returns the kubeconfig, YAML. The context through the gateway names a user that
// the kubeconfig does not have: merged with the caller's own, in whatever order, it uses the
// caller's credential. A user without credentials would take its place in one of the orders.
func (c contents) kubeconfig() ([]byte, error) {
	config := clientcmdapi.NewConfig()
	name := c.cluster.Name
	config.Clusters[name] = &clientcmdapi.Cluster{
		Server: c.url + "/clusters/" + c.cluster.Namespace + "/" + name, CertificateAuthorityData: c.ca,
	}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: c.entry}
	config.CurrentContext = name
	certified := c.entry + "@" + c.cluster.String()
	config.AuthInfos[certified] = &clientcmdapi.AuthInfo{ClientCertificateData: c.certificate, ClientKeyData: c.key}
	for _, server := range c.to.Servers {
		direct := name + "-" + server.Host
		config.Clusters[direct] = &clientcmdapi.Cluster{
			Server: "https://" + server.Address, TLSServerName: serverName, CertificateAuthorityData: c.to.CA,
		}
		config.Contexts[direct] = &clientcmdapi.Context{Cluster: direct, AuthInfo: certified}
	}
	out, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return out, nil
}
