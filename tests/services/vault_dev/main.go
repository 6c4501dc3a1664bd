// A Vault with nothing but its transit engine, in memory and unsealed: Vault's core and HTTP interface, without the many engines and the
// command line of `vault server -dev`, for which not all modules are published.
//
//	vault ADDRESS    writes its root token to standard output, and answers until it is killed
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/vault/builtin/logical/transit"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/inmem"
	"github.com/hashicorp/vault/vault"
)

func main() {
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn})
	storage, err := inmem.NewInmem(nil, logger)
	check(err)

	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        storage,
		Logger:          logger,
		DisableMlock:    true,
		BuiltinRegistry: transitAlone{},
		LogicalBackends: map[string]logical.Factory{"transit": transit.Factory},
	})
	check(err)

	started, err := core.Initialize(context.Background(), &vault.InitParams{
		BarrierConfig: &vault.SealConfig{SecretShares: 1, SecretThreshold: 1},
	})
	check(err)
	_, err = core.Unseal(started.SecretShares[0])
	check(err)

	fmt.Println(started.RootToken)
	properties := &vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}}
	check(http.ListenAndServe(os.Args[1], vaulthttp.Handler.Handler(properties)))
}

// transitAlone is the registry of the engines that a mount may name.
type transitAlone struct{}

func (transitAlone) Contains(name string, kind consts.PluginType) bool {
	return name == "transit" && kind == consts.PluginTypeSecrets
}

func (r transitAlone) Get(name string, kind consts.PluginType) (func() (interface{}, error), bool) {
	return func() (interface{}, error) { return logical.Factory(transit.Factory), nil }, r.Contains(name, kind)
}

func (r transitAlone) Keys(kind consts.PluginType) []string {
	if r.Contains("transit", kind) {
		return []string{"transit"}
	}
	return nil
}

func (r transitAlone) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, r.Contains(name, kind)
}

func (transitAlone) IsBuiltinEntPlugin(string, consts.PluginType) bool { return false }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
