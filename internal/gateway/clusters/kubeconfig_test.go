package clusters

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfigWith returns a kubeconfig after a change.
func kubeconfigWith(g Gomega, change func(*clientcmdapi.Config)) []byte {
	c := clientcmdapi.NewConfig()
	c.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://c-endpoint.shop.svc.cluster.local:16443", CertificateAuthorityData: []byte("ca")}
	c.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: []byte("certificate"), ClientKeyData: []byte("key")}
	c.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	c.CurrentContext = "x"
	change(c)
	raw, err := clientcmd.Write(*c)
	g.Expect(err).NotTo(HaveOccurred())
	return raw
}

// A kubeconfig is data of a tenant. It must not make the manager read files, run programs or
// trust everybody.
func TestThreat32_KubeconfigIsDataOnly(t *testing.T) {
	g := NewWithT(t)
	config, server, err := configOf(kubeconfigWith(g, func(*clientcmdapi.Config) {}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server).To(Equal("c-endpoint.shop.svc.cluster.local:16443"))
	g.Expect(string(config.CAData) + " " + string(config.CertData) + " " + string(config.KeyData)).To(Equal("ca certificate key"))

	for name, change := range map[string]func(*clientcmdapi.Config){
		"token file":       func(c *clientcmdapi.Config) { c.AuthInfos["u"].TokenFile = "/var/run/secrets/token" },
		"certificate file": func(c *clientcmdapi.Config) { c.AuthInfos["u"].ClientCertificate = "/etc/passwd" },
		"key file":         func(c *clientcmdapi.Config) { c.AuthInfos["u"].ClientKey = "/etc/passwd" },
		"CA file":          func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthority = "/etc/passwd" },
		"program": func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].Exec = &clientcmdapi.ExecConfig{Command: "sh", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: "Never"}
		},
		"plugin": func(c *clientcmdapi.Config) {
			c.AuthInfos["u"].AuthProvider = &clientcmdapi.AuthProviderConfig{Name: "oidc"}
		},
		"any certificate":    func(c *clientcmdapi.Config) { c.Clusters["c"].InsecureSkipTLSVerify = true },
		"no CA":              func(c *clientcmdapi.Config) { c.Clusters["c"].CertificateAuthorityData = nil },
		"plain HTTP":         func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "http://c-endpoint:16443" },
		"no server":          func(c *clientcmdapi.Config) { c.Clusters["c"].Server = "https://" },
		"no credentials":     func(c *clientcmdapi.Config) { c.AuthInfos["u"] = &clientcmdapi.AuthInfo{} },
		"no context":         func(c *clientcmdapi.Config) { c.CurrentContext = "y" },
		"context of no one":  func(c *clientcmdapi.Config) { c.Contexts["x"].AuthInfo = "v" },
		"context of nowhere": func(c *clientcmdapi.Config) { c.Contexts["x"].Cluster = "d" },
	} {
		_, _, err := configOf(kubeconfigWith(g, change))
		g.Expect(err).To(HaveOccurred(), name)
	}
	_, _, err = configOf([]byte("{"))
	g.Expect(err).To(HaveOccurred())
}
