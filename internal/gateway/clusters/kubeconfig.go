package clusters

import (
	"errors"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// configOf returns a client configuration of a kubeconfig, and its server, host:port. Any user
// with the right to write Secrets in the Cluster's namespace may have written the kubeconfig.
// So only embedded data is taken: it may name files of the manager's Pod, such as the manager's
// token, and programs to run there.
func configOf(kubeconfig []byte) (config *rest.Config, server string, err error) {
	parsed, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, "", err
	}
	current := parsed.Contexts[parsed.CurrentContext]
	if current == nil {
		return nil, "", errors.New("it has no current context")
	}
	cluster, user := parsed.Clusters[current.Cluster], parsed.AuthInfos[current.AuthInfo]
	if cluster == nil || user == nil {
		return nil, "", errors.New("its current context names no cluster or no user")
	}
	u, err := url.Parse(cluster.Server)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, "", errors.New("its server is no https URL")
	}
	if err := check(cluster, user); err != nil {
		return nil, "", err
	}
	return &rest.Config{
		Host: "https://" + u.Host, BearerToken: user.Token,
		TLSClientConfig: rest.TLSClientConfig{
			ServerName: cluster.TLSServerName, CAData: cluster.CertificateAuthorityData,
			CertData: user.ClientCertificateData, KeyData: user.ClientKeyData,
		},
	}, u.Host, nil
}

// check refuses what would need anything that is not in the kubeconfig, or no certificate of the
// server.
func check(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	switch {
	case cluster.InsecureSkipTLSVerify || len(cluster.CertificateAuthorityData) == 0:
		return errors.New("it has no certificate-authority-data to verify the server with")
	case cluster.CertificateAuthority != "" || user.ClientCertificate != "" || user.ClientKey != "" || user.TokenFile != "":
		return errors.New("it names files: only embedded certificates, keys and tokens are taken")
	case user.Exec != nil || user.AuthProvider != nil:
		return errors.New("it names a program or plugin for credentials: only embedded certificates, keys and tokens are taken")
	case user.Token == "" && len(user.ClientCertificateData) == 0:
		return errors.New("its user has neither a client certificate nor a token")
	}
	return nil
}
