module vaultdev

go 1.25.3

// Vault of whose SDK the release that it names fits: of 1.21.4 none does.
require (
	github.com/hashicorp/vault v1.21.0
	github.com/hashicorp/vault/sdk v0.20.0
)

// As Vault's own go.mod has it.
replace (
	github.com/99designs/keyring => github.com/Jeffail/keyring v1.2.3
	github.com/ma314smith/signedxml v1.1.1 => github.com/moov-io/signedxml v1.1.1
)
