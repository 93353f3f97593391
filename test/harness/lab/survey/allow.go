package survey

import "regexp"

// skipped returns folders and files that are not surveyed, with the reason.
func skipped() map[string]string {
	return map[string]string{
		"/proc":                        "belongs to the kernel; relevant parts have sections of their own",
		"/sys":                         "belongs to the kernel",
		"/dev":                         "belongs to the kernel",
		"/run/systemd":                 "state of systemd since this boot; units have a section of their own",
		"/run/containerd":              "sockets, and containers, which have a section of their own",
		"/var/lib/containerd":          "images stay; they, their layers and all containers have a section of their own",
		"/var/lib/elemental":           "state of the agent: its key and records",
		"/run/elemental-agent":         "marker of the agent for this boot",
		"/run/log/journal":             "the system's log",
		"/var/log/journal":             "the system's log",
		"/run/utmp":                    "the system's log of boots",
		"/var/log/wtmp":                "the system's log of boots",
		"/run/lab-boot-id":             "marker of the lab for this boot",
		"/run/lab-kubeadm-*":           "kubeadm, unpacked by the lab's wrapper in a bundle",
		"/var/lib/systemd/random-seed": "differs at each boot",
		"/etc/hostname":                "a host keeps the name that its ElementalHost has",
		"/etc/hosts":                   "a host keeps the name that its ElementalHost has",
		"/etc/passwd-":                 "backup by useradd and userdel",
		"/etc/group-":                  "backup by useradd and userdel",
		"/etc/shadow-":                 "backup by useradd and userdel",
		"/etc/gshadow-":                "backup by useradd and userdel",
		"/etc/subuid-":                 "backup by useradd and userdel",
		"/etc/subgid-":                 "backup by useradd and userdel",
	}
}

// allowance describes lines that may differ.
type allowance struct {
	section string
	pattern *regexp.Regexp
	// why is the reason for which the lines are not leftovers.
	why string
}

func allowances() []allowance {
	return []allowance{
		{"filter", regexp.MustCompile(`127\.0\.0\.11\b`), "Docker's DNS resolver uses other ports after each start"},
		{"sysctls", regexp.MustCompile(`^net\.netfilter\.nf_conntrack_count `), "number of connections"},
	}
}
