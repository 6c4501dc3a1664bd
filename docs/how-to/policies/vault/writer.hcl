# vault policy write writer writer.hcl
path "transit/encrypt/orders" {
  capabilities = ["update"]
}
path "transit/decrypt/orders" {
  capabilities = ["update"]
}
path "transit/encrypt/pii" {
  capabilities = ["update"]
}
path "transit/decrypt/pii" {
  capabilities = ["update"]
}
