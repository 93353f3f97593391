package bootstrap

import (
	"bytes"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/osrelease"
)

// dataSource is the value of the variables that name cloud-init's data source. Documents
// for hosts without a cloud are written for NoCloud.
const dataSource = "nocloud"

// unknown is what cloud-init calls the cloud of a host with NoCloud.
const unknown = "unknown"

// Variables returns the variables for a Jinja template in bootstrap data: those of
// cloud-init's standardized instance data, except for the version of Python and
// system_platform (https://docs.cloud-init.io/en/latest/explanation/instancedata.html).
// root is "/", or the directory that replaces it.
func Variables(root, id, hostname string) (bootstrapdata.Variables, error) {
	release, err := osrelease.Read(root)
	if err != nil {
		return nil, err
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return nil, fmt.Errorf("asking the kernel for its version: %w", err)
	}
	machine := text(kernel.Machine[:])
	names := map[string]any{
		"instance_id": id, "instance-id": id,
		"local_hostname": hostname, "local-hostname": hostname, "hostname": hostname,
	}
	distribution := distro(release["ID"])
	standard := map[string]any{
		"instance_id": id, "instance-id": id, "local_hostname": hostname, "local-hostname": hostname, "hostname": hostname,
		"cloud_name": unknown, "cloud-name": unknown, "cloud_id": dataSource, "platform": dataSource, "subplatform": dataSource,
		"availability_zone": nil, "availability-zone": nil, "region": nil, "public_ssh_keys": []any{},
		"distro": distribution, "distro_version": release["VERSION_ID"], "distro_release": codename(release, machine),
		"variant": variant(distribution), "kernel_release": text(kernel.Release[:]), "machine": machine,
	}
	return bootstrapdata.NewVariables(names, standard), nil
}

// text returns a string of utsname.
func text(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return string(before)
}

// distro returns cloud-init's name of a distribution.
func distro(id string) string {
	if id = strings.ToLower(id); id == "rhel" {
		return "redhat"
	}
	return id
}

// codename returns the name of the release. For SUSE, cloud-init has the architecture there.
func codename(release map[string]string, machine string) string {
	if id := release["ID"]; strings.Contains(id, "suse") || strings.Contains(id, "sles") {
		return machine
	}
	return release["VERSION_CODENAME"]
}

// variant returns cloud-init's name of the family of a distribution.
func variant(distro string) string {
	switch distro {
	case "almalinux", "alpine", "arch", "azurelinux", "centos", "cloudlinux", "debian", "eurolinux", "fedora",
		"mariner", "miraclelinux", "openeuler", "opencloudos", "openmandriva", "photon", "rocky", "suse", "tencentos", "virtuozzo":
		return distro
	case "ubuntu", "linuxmint", "mint":
		return "ubuntu"
	case "redhat":
		return "rhel"
	case "opensuse", "opensuse-leap", "opensuse-microos", "opensuse-slowroll", "opensuse-tumbleweed", "sle-micro", "sle_hpc", "sles":
		return "suse"
	}
	return "linux"
}
