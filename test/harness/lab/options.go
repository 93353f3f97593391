package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/tools/toolset"
)

// Kinds of management cluster.
const (
	// ManagementHost is a single-node cluster that kubeadm creates on a host of the lab.
	ManagementHost = "host"
	// ManagementKind is a cluster that kind creates from a node image of the lab.
	ManagementKind = "kind"
)

// Options configures a lab. The zero value of each field means its default.
type Options struct {
	// Name distinguishes labs on one machine. Default "elemental".
	Name string
	// Hosts is the number of hosts in addition to the management cluster. Default 6.
	Hosts int
	// Subnet is the network of the hosts, at least a /24. Default 172.30.0.0/24.
	Subnet string
	// Management is ManagementHost (the default) or ManagementKind.
	Management string
	// Release is the folder with this provider's release. Default: the newest in out/manifests of the checkout.
	Release string
	// State is the folder for kubeconfig files, repositories and the like; Down removes it. Default: a folder in the
	// cache.
	State string
	// Checkout is the root folder of this repository. Default: found in the working folder or
	// above.
	Checkout string
	// Out receives progress lines. Default: standard error.
	Out io.Writer
}

// maxHosts is the highest number of a host, because addresses and pod subnets are derived from it.
const maxHosts = 50

// FromEnvironment fills options that have no value from LAB_NAME, LAB_HOSTS, LAB_SUBNET, LAB_MANAGEMENT, LAB_RELEASE
// and LAB_STATE.
func (o Options) FromEnvironment(get func(string) string) (Options, error) {
	for _, v := range []struct {
		field *string
		name  string
	}{
		{&o.Name, "LAB_NAME"}, {&o.Subnet, "LAB_SUBNET"}, {&o.Management, "LAB_MANAGEMENT"},
		{&o.Release, "LAB_RELEASE"}, {&o.State, "LAB_STATE"},
	} {
		if *v.field == "" {
			*v.field = get(v.name)
		}
	}
	if text := get("LAB_HOSTS"); o.Hosts == 0 && text != "" {
		count, err := strconv.Atoi(text)
		if err != nil {
			return o, fmt.Errorf("reading LAB_HOSTS: %w", err)
		}
		o.Hosts = count
	}
	return o, nil
}

// complete sets defaults and checks.
func (o Options) complete() (Options, error) {
	setDefault(&o.Name, "elemental")
	setDefault(&o.Subnet, "172.30.0.0/24")
	setDefault(&o.Management, ManagementHost)
	if o.Hosts == 0 {
		o.Hosts = 6
	}
	if o.Out == nil {
		o.Out = os.Stderr
	}
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`).MatchString(o.Name) {
		return o, fmt.Errorf("the name %q is not made of a-z, 0-9 and dashes", o.Name)
	}
	if o.Hosts < 0 || o.Hosts > maxHosts {
		return o, fmt.Errorf("a lab has at most %d hosts", maxHosts)
	}
	if o.Management != ManagementHost && o.Management != ManagementKind {
		return o, fmt.Errorf("the management cluster is %q or %q, not %q", ManagementHost, ManagementKind, o.Management)
	}
	prefix, err := netip.ParsePrefix(o.Subnet)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 24 {
		return o, fmt.Errorf("the subnet %q is no IPv4 network of at least a /24", o.Subnet)
	}
	if o.Checkout == "" {
		if o.Checkout, err = findCheckout("."); err != nil {
			return o, err
		}
	}
	if o.State == "" {
		cache, err := toolset.CacheDir()
		if err != nil {
			return o, err
		}
		o.State = filepath.Join(cache, "lab-state", o.Name)
	}
	if o.State, err = filepath.Abs(o.State); err != nil {
		return o, fmt.Errorf("finding the state folder: %w", err)
	}
	return o, nil
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// findCheckout returns the folder of this repository that holds the given one.
func findCheckout(from string) (string, error) {
	folder, err := filepath.Abs(from)
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module github.com/capi-elemental/cluster-api-provider-elemental\n")) {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", errors.New("this is not in a checkout of cluster-api-provider-elemental")
		}
		folder = parent
	}
}
