package adoption

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/etcd"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/staticpods"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

const (
	// adminConfig is the kubeconfig of administrators that kubeadm writes on a control plane.
	adminConfig = "/etc/kubernetes/admin.conf"
	// userPrefix is the prefix of a kubelet's user name.
	userPrefix = "system:node:"
	// defaultPort is that of an https URL that names none.
	defaultPort = "443"
)

// Checker checks the Node of this host.
type Checker struct {
	// Root replaces "/".
	Root string
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check returns an error unless the Node on the host is the one that want describes. The error wraps operation.ErrNothingDone if an API server or etcd does not
// answer; any other one stays until a person does something.
func (c Checker) Check(ctx context.Context, want protocol.Adoption) error {
	access, err := c.kubelet(want.NodeName)
	if err != nil {
		return err
	}
	if err := checkAuthority(access, want.AuthorityHash); err != nil {
		return err
	}
	// The role comes before the endpoint, which may be that of a host with the wrong role.
	if want.ControlPlane {
		err = c.checkControlPlane(ctx)
	} else {
		err = c.checkWorker()
	}
	if err != nil {
		return err
	}
	if err := c.checkEndpoint(access, want); err != nil {
		return err
	}
	return c.checkNode(ctx, want)
}

// kubelet returns the access of the kubelet, which must be that of the Node nodeName.
func (c Checker) kubelet(nodeName string) (kube.Access, error) {
	if !c.exists(cluster.Kubeconfig) {
		return kube.Access{}, fmt.Errorf("the host runs no Node of kubeadm: there is no %s", cluster.Kubeconfig)
	}
	access, err := kube.Load(filepath.Join(c.Root, cluster.Kubeconfig))
	if err != nil {
		return kube.Access{}, err
	}
	name, ok := strings.CutPrefix(access.User(), userPrefix)
	switch {
	case !ok:
		return kube.Access{}, fmt.Errorf("the certificate in %s is for %q, not for a Node", cluster.Kubeconfig, access.User())
	case name != nodeName:
		return kube.Access{}, fmt.Errorf("the Node is named %s, not %q: set spec.hostname of the ElementalHost to %s", name, nodeName, name)
	}
	return access, nil
}

// checkAuthority compares the hash of kubeadm's --discovery-token-ca-cert-hash.
func checkAuthority(access kube.Access, want string) error {
	var found []string
	for _, authority := range access.Authorities {
		sum := sha256.Sum256(authority.RawSubjectPublicKeyInfo)
		found = append(found, "sha256:"+hex.EncodeToString(sum[:]))
	}
	if slices.Contains(found, want) {
		return nil
	}
	return fmt.Errorf("the host belongs to another cluster, or the Secret <cluster>-ca has another authority: the kubelet trusts %s, not %s",
		strings.Join(found, ", "), want)
}

// checkEndpoint compares the server of the kubelet, and of administrators on a control plane: the
// kubelet there may use the API server of its own host.
func (c Checker) checkEndpoint(access kube.Access, want protocol.Adoption) error {
	if want.ControlPlane && c.exists(adminConfig) {
		var err error
		if access, err = kube.Load(filepath.Join(c.Root, adminConfig)); err != nil {
			return fmt.Errorf("finding the endpoint of the cluster: %w", err)
		}
	}
	if found := canonical(access.Server.Host); found != canonical(want.Endpoint) {
		return fmt.Errorf("the cluster's endpoint is %s, not %s: give it as spec.controlPlaneEndpoint of the ElementalCluster", found, want.Endpoint)
	}
	return nil
}

// canonical returns a host with or without a port as host:port, so that equal ones compare equal.
func canonical(address string) string {
	parsed, err := url.Parse("https://" + address)
	if err != nil {
		return address
	}
	host, port := strings.ToLower(parsed.Hostname()), parsed.Port()
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	if port == "" {
		port = defaultPort
	}
	return net.JoinHostPort(host, port)
}

// checkWorker refuses the host of a control plane: its Machine would be deleted as that of a
// worker is.
func (c Checker) checkWorker() error {
	if c.exists(staticpods.Path(staticpods.Server)) {
		return errors.New("an API server runs on the host: set spec.adoption.role of the ElementalHost to ControlPlane")
	}
	return nil
}

// checkControlPlane requires an API server and the only member of etcd.
func (c Checker) checkControlPlane(ctx context.Context) error {
	if !c.exists(staticpods.Path(staticpods.Server)) {
		return errors.New("no API server of kubeadm runs on the host: set spec.adoption.role of the ElementalHost to Worker")
	}
	member, found, err := etcd.Local(c.Root)
	if err != nil {
		return err
	}
	if !found {
		return errors.New("no etcd of kubeadm runs on the host: a control plane whose etcd runs elsewhere can't be adopted")
	}
	member.Dial = c.Dial
	names, err := etcd.Members(ctx, member.Options)
	if err != nil {
		return later(err)
	}
	if len(names) != 1 {
		return fmt.Errorf("etcd has %d members: a control plane of several hosts can't be adopted one by one, because "+
			"KubeadmControlPlane removes members of etcd whose Node has no Machine. Remove the others before, and have Cluster API add them again", len(names))
	}
	return nil
}

// checkNode compares the version of the Node's kubelet. A blank version is any.
func (c Checker) checkNode(ctx context.Context, want protocol.Adoption) error {
	node, err := cluster.Client{Root: c.Root, Dial: c.Dial}.Node(ctx)
	if status, ok := errors.AsType[*kube.StatusError](err); ok && status.Code == http.StatusNotFound {
		return fmt.Errorf("the cluster has no Node %s: restart the kubelet, which registers it", want.NodeName)
	}
	if err != nil {
		return later(err)
	}
	if want.Version != "" && node.Version != want.Version {
		return fmt.Errorf("the Node runs Kubernetes %s, the Machine is of version %s: set the version of the Machine to that of the Node",
			node.Version, want.Version)
	}
	return nil
}

// exists also counts what can't be looked at: reading it says why.
func (c Checker) exists(path string) bool {
	_, err := os.Stat(filepath.Join(c.Root, path))
	return !errors.Is(err, fs.ErrNotExist)
}

// later marks the error of a check that can be repeated.
func later(err error) error { return fmt.Errorf("%w: %w", operation.ErrNothingDone, err) }
