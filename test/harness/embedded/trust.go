package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/pki"
)

// trust has the authorities and certificates of the cluster's servers. All local users can dial the servers, so every
// server authenticates its clients. etcd has an authority of its own, because its clients can change everything.
type trust struct {
	// folder has the files that are named below.
	folder         string
	cluster, store *pki.Authority
}

// Names of files in the folder pki.
const (
	clusterCA      = "cluster-ca.crt"
	storeCA        = "etcd-ca.crt"
	storeName      = "etcd"
	storeClient    = "etcd-client"
	serviceAccount = "service-account"
	// The default file names of controller-runtime's webhook server and others.
	servingCert = "tls.crt"
	servingKey  = "tls.key"
)

// newTrust creates authorities and the certificates that belong to no user.
func newTrust(folder string, now time.Time) (*trust, error) {
	t := &trust{folder: folder}
	var err error
	if t.cluster, err = pki.NewAuthority("embedded", now); err != nil {
		return nil, err
	}
	if t.store, err = pki.NewAuthority("embedded-etcd", now); err != nil {
		return nil, err
	}
	serving, err := t.cluster.Server("embedded")
	if err != nil {
		return nil, err
	}
	store, err := t.store.Peer(storeName)
	if err != nil {
		return nil, err
	}
	client, err := t.store.Client("kube-apiserver")
	if err != nil {
		return nil, err
	}
	private, public, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	for name, content := range map[string][]byte{
		clusterCA: t.cluster.Certificate, storeCA: t.store.Certificate,
		servingCert: serving.Certificate, servingKey: serving.Key,
		storeName + ".crt": store.Certificate, storeName + ".key": store.Key,
		storeClient + ".crt": client.Certificate, storeClient + ".key": client.Key,
		serviceAccount + ".key": private, serviceAccount + ".pub": public,
	} {
		if err := os.WriteFile(t.file(name), content, 0o600); err != nil {
			return nil, fmt.Errorf("writing a certificate or key: %w", err)
		}
	}
	return t, nil
}

// file returns the path of a file in the folder.
func (t *trust) file(name string) string { return filepath.Join(t.folder, name) }

// writeKubeconfig writes the kubeconfig file of a user in the given groups.
func (t *trust) writeKubeconfig(file, server, user string, groups ...string) error {
	pair, err := t.cluster.Client(user, groups...)
	if err != nil {
		return err
	}
	const name = "embedded"
	err = clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: t.cluster.Certificate}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificateData: pair.Certificate, ClientKeyData: pair.Key}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, file)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return nil
}
