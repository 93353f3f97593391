// Package certificates reads when the certificates end that kubeadm has made for a control plane.
//
// It opens no file that has nothing but a private key. A kubeconfig has a key beside its
// certificate: only the certificate is decoded.
package certificates

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// Folder is where kubeadm has its certificates and kubeconfigs.
	Folder = "/etc/kubernetes"
	// manifest is there on control-plane hosts only.
	manifest = "/etc/kubernetes/manifests/kube-apiserver.yaml"
	// maxBytes bounds a file. Those of kubeadm have a few KiB.
	maxBytes = 1 << 20
)

// Read returns the certificates of the host whose files are below root, usually "/"; none if the
// host is not a control plane. A file that can't be read, or has no certificate, is left out.
func Read(root string) []protocol.CertificateFacts {
	if _, err := os.Stat(filepath.Join(root, manifest)); err != nil {
		return nil
	}
	var found []protocol.CertificateFacts
	for _, name := range protocol.CertificateNames() {
		leaf, err := Load(root, name)
		if err != nil {
			continue
		}
		found = append(found, protocol.CertificateFacts{Name: name, NotAfter: leaf.NotAfter.UTC()})
	}
	return found
}

// Load returns the certificate in one of the files that protocol.CertificateNames lists. Of several
// it returns the one that ends first.
func Load(root, name string) (*x509.Certificate, error) {
	data, err := readFile(filepath.Join(root, Folder, name))
	if err != nil {
		return nil, fmt.Errorf("reading a certificate: %w", err)
	}
	if strings.HasSuffix(name, ".conf") {
		if data, err = ofKubeconfig(data); err != nil {
			return nil, fmt.Errorf("reading the certificate in %s: %w", name, err)
		}
	}
	found, err := first(data)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate in %s: %w", name, err)
	}
	return found, nil
}

func readFile(path string) (data []byte, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return io.ReadAll(io.LimitReader(file, maxBytes))
}

// ofKubeconfig returns the client certificates of a kubeconfig, PEM.
func ofKubeconfig(data []byte) ([]byte, error) {
	var config struct {
		Users []struct {
			User struct {
				Certificate string `yaml:"client-certificate-data"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := kube.Decode(data, &config); err != nil {
		return nil, err
	}
	var all []byte
	for i := range config.Users {
		certificate, err := base64.StdEncoding.DecodeString(config.Users[i].User.Certificate)
		if err != nil {
			return nil, errors.New("client-certificate-data is not base64")
		}
		all = append(append(all, certificate...), '\n')
	}
	return all, nil
}

// first returns the certificate that ends first.
func first(data []byte) (found *x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		if found == nil || certificate.NotAfter.Before(found.NotAfter) {
			found = certificate
		}
	}
	if found == nil {
		return nil, errors.New("there is no certificate")
	}
	return found, nil
}

// Ends returns when the first of the certificates ends that kubeadm can renew; zero without any.
func Ends(all []protocol.CertificateFacts) (at time.Time) {
	for _, c := range all {
		if !protocol.IsAuthority(c.Name) && (at.IsZero() || c.NotAfter.Before(at)) {
			at = c.NotAfter
		}
	}
	return at
}
