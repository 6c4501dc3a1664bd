# vault policy write masked-analyst masked-analyst.hcl
path "transit/decrypt/orders" {
  capabilities = ["update"]
}
